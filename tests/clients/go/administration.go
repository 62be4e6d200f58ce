package main

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"peeklock.test/trial"
)

// administrator speaks https to whatever port the string names, as the SDK always does.
func administrator(t *trial.Trial) *admin.Client {
	return administratorWith(t, t.AdminConnectionString)
}

func administratorWith(t *trial.Trial, connectionString string) *admin.Client {
	client, err := admin.NewClientFromConnectionString(connectionString, &admin.ClientOptions{
		ClientOptions: azcore.ClientOptions{
			Transport: &http.Client{Transport: &http.Transport{TLSClientConfig: trusting(t)}},
		},
	})
	t.Must(err, "make an admin client")
	return client
}

func conflict(t *trial.Trial, err error, doing string) {
	trial.Equal(t, http.StatusConflict, trial.Fails[*azcore.ResponseError](t, err, doing).StatusCode, doing)
}

func missing(t *trial.Trial, err error, doing string) {
	trial.Equal(t, http.StatusNotFound, trial.Fails[*azcore.ResponseError](t, err, doing).StatusCode, doing)
}

func adminQueue(t *trial.Trial) {
	manage, name := administrator(t), t.Name("admin")
	target := t.Queue(nil)
	wanted := admin.QueueProperties{
		LockDuration:                        to.Ptr("PT45S"),
		MaxSizeInMegabytes:                  to.Ptr(int32(2048)),
		RequiresDuplicateDetection:          to.Ptr(true),
		RequiresSession:                     to.Ptr(true),
		DefaultMessageTimeToLive:            to.Ptr("PT6H"),
		DeadLetteringOnMessageExpiration:    to.Ptr(true),
		DuplicateDetectionHistoryTimeWindow: to.Ptr("PT4H"),
		MaxDeliveryCount:                    to.Ptr(int32(7)),
		EnableBatchedOperations:             to.Ptr(false),
		Status:                              to.Ptr(admin.EntityStatusActive),
		AutoDeleteOnIdle:                    to.Ptr("PT10M"),
		EnablePartitioning:                  to.Ptr(false),
		UserMetadata:                        to.Ptr("about <this>"),
		ForwardDeadLetteredMessagesTo:       to.Ptr(target),
		MaxMessageSizeInKilobytes:           to.Ptr(int64(2048)),
	}
	created, err := manage.CreateQueue(t, name, &admin.CreateQueueOptions{Properties: &wanted})
	t.Must(err, "create a queue")
	trial.Equal(t, name, created.QueueName, "name")
	got, err := manage.GetQueue(t, name, nil)
	t.Must(err, "get the queue")
	trial.Equal(t, created.QueueProperties, got.QueueProperties, "what get gives")
	got.AuthorizationRules, got.ForwardDeadLetteredMessagesTo = nil, wanted.ForwardDeadLetteredMessagesTo
	trial.Equal(t, wanted, got.QueueProperties, "what was asked for")

	_, err = manage.CreateQueue(t, name, nil)
	conflict(t, err, "create it twice")

	wanted.MaxDeliveryCount = to.Ptr(int32(3))
	updated, err := manage.UpdateQueue(t, name, wanted, nil)
	t.Must(err, "update the queue")
	trial.Equal(t, int32(3), *updated.MaxDeliveryCount, "after the update")

	t.True(listsQueue(t, manage, name), "the list names it")
	_, err = manage.DeleteQueue(t, name, nil)
	t.Must(err, "delete the queue")
	gone, err := manage.GetQueue(t, name, nil)
	t.Must(err, "get what is gone")
	t.True(gone == nil, "gone is nil")
	_, err = manage.DeleteQueue(t, name, nil)
	missing(t, err, "delete it twice")
	_, err = manage.UpdateQueue(t, name, wanted, nil)
	missing(t, err, "update what is gone")

	namespace, err := manage.GetNamespaceProperties(t, nil)
	t.Must(err, "get the namespace")
	t.True(namespace.Name != "" && !namespace.CreatedTime.IsZero(), "the namespace has a name and an age")
}

// listsQueue looks through pages of two.
func listsQueue(t *trial.Trial, manage *admin.Client, name string) bool {
	pages := manage.NewListQueuesPager(&admin.ListQueuesOptions{MaxPageSize: 2})
	for pages.More() {
		page, err := pages.NextPage(t)
		t.Must(err, "list queues")
		t.True(len(page.Queues) <= 2, "a page is as small as asked for")
		for _, queue := range page.Queues {
			if queue.QueueName == name {
				return true
			}
		}
	}
	return false
}

func adminTopic(t *trial.Trial) {
	manage, name := administrator(t), t.Name("admin")
	wanted := admin.TopicProperties{
		MaxSizeInMegabytes:                  to.Ptr(int32(2048)),
		RequiresDuplicateDetection:          to.Ptr(true),
		DefaultMessageTimeToLive:            to.Ptr("PT6H"),
		DuplicateDetectionHistoryTimeWindow: to.Ptr("PT4H"),
		EnableBatchedOperations:             to.Ptr(false),
		Status:                              to.Ptr(admin.EntityStatusActive),
		AutoDeleteOnIdle:                    to.Ptr("PT10M"),
		EnablePartitioning:                  to.Ptr(false),
		SupportOrdering:                     to.Ptr(true),
		UserMetadata:                        to.Ptr("topic"),
		MaxMessageSizeInKilobytes:           to.Ptr(int64(2048)),
	}
	created, err := manage.CreateTopic(t, name, &admin.CreateTopicOptions{Properties: &wanted})
	t.Must(err, "create a topic")
	trial.Equal(t, name, created.TopicName, "name")
	got, err := manage.GetTopic(t, name, nil)
	t.Must(err, "get the topic")
	got.AuthorizationRules = nil
	trial.Equal(t, wanted, got.TopicProperties, "what was asked for")
	_, err = manage.CreateTopic(t, name, nil)
	conflict(t, err, "create it twice")
	wanted.UserMetadata = to.Ptr("changed")
	updated, err := manage.UpdateTopic(t, name, wanted, nil)
	t.Must(err, "update the topic")
	trial.Equal(t, "changed", *updated.UserMetadata, "after the update")

	found := false
	for pages := manage.NewListTopicsPager(nil); pages.More(); {
		page, err := pages.NextPage(t)
		t.Must(err, "list topics")
		for _, topic := range page.Topics {
			found = found || topic.TopicName == name
		}
	}
	t.True(found, "the list names it")
	_, err = manage.DeleteTopic(t, name, nil)
	t.Must(err, "delete the topic")
	gone, err := manage.GetTopic(t, name, nil)
	t.Must(err, "get what is gone")
	t.True(gone == nil, "gone is nil")
}

func adminSubscription(t *trial.Trial) {
	manage, topic := administrator(t), t.Topic(nil)
	wanted := admin.SubscriptionProperties{
		LockDuration:                                    to.Ptr("PT45S"),
		RequiresSession:                                 to.Ptr(true),
		DefaultMessageTimeToLive:                        to.Ptr("PT6H"),
		DeadLetteringOnMessageExpiration:                to.Ptr(true),
		EnableDeadLetteringOnFilterEvaluationExceptions: to.Ptr(false),
		MaxDeliveryCount:                                to.Ptr(int32(7)),
		Status:                                          to.Ptr(admin.EntityStatusActive),
		AutoDeleteOnIdle:                                to.Ptr("PT10M"),
		EnableBatchedOperations:                         to.Ptr(false),
		UserMetadata:                                    to.Ptr("subscription"),
	}
	asked := wanted
	asked.DefaultRule = &admin.RuleProperties{
		Name: "first", Filter: &admin.SQLFilter{Expression: "x = 1"}, Action: &admin.SQLAction{Expression: "SET y = 2"},
	}
	created, err := manage.CreateSubscription(t, topic, "sub", &admin.CreateSubscriptionOptions{Properties: &asked})
	t.Must(err, "create a subscription")
	trial.Equal(t, "sub", created.SubscriptionName, "name")
	got, err := manage.GetSubscription(t, topic, "sub", nil)
	t.Must(err, "get the subscription")
	got.DefaultRule = nil
	trial.Equal(t, wanted, got.SubscriptionProperties, "what was asked for")
	rule, err := manage.GetRule(t, topic, "sub", "first", nil)
	t.Must(err, "get its first rule")
	t.True(rule != nil, "the first rule is there")
	trial.Equal(t, admin.RuleFilter(&admin.SQLFilter{Expression: "x = 1"}), rule.Filter, "its filter")

	_, err = manage.CreateSubscription(t, topic, "sub", nil)
	conflict(t, err, "create it twice")
	_, err = manage.CreateSubscription(t, "no-such-topic", "sub", nil)
	missing(t, err, "create it nowhere")
	wanted.MaxDeliveryCount = to.Ptr(int32(3))
	updated, err := manage.UpdateSubscription(t, topic, "sub", wanted, nil)
	t.Must(err, "update the subscription")
	trial.Equal(t, int32(3), *updated.MaxDeliveryCount, "after the update")

	var names []string
	for pages := manage.NewListSubscriptionsPager(topic, nil); pages.More(); {
		page, err := pages.NextPage(t)
		t.Must(err, "list subscriptions")
		for _, subscription := range page.Subscriptions {
			names = append(names, subscription.SubscriptionName)
		}
	}
	trial.Equal(t, []string{"sub"}, names, "the list")
	_, err = manage.DeleteSubscription(t, topic, "sub", nil)
	t.Must(err, "delete the subscription")
	gone, err := manage.GetSubscription(t, topic, "sub", nil)
	t.Must(err, "get what is gone")
	t.True(gone == nil, "gone is nil")
}

func adminRule(t *trial.Trial) {
	manage, topic := administrator(t), t.Topic(nil)
	t.Subscription(topic, "sub", nil)
	filters := map[string]admin.RuleFilter{
		"sql": &admin.SQLFilter{
			Expression: "size > @limit AND color = @color",
			Parameters: map[string]any{"@limit": int64(3), "@color": "red"},
		},
		"none": &admin.FalseFilter{},
		"all":  &admin.TrueFilter{},
		"correlated": &admin.CorrelationFilter{
			ContentType: to.Ptr("a"), CorrelationID: to.Ptr("b"), MessageID: to.Ptr("c"), ReplyTo: to.Ptr("d"),
			ReplyToSessionID: to.Ptr("e"), SessionID: to.Ptr("f"), Subject: to.Ptr("g"), To: to.Ptr("h"),
			ApplicationProperties: map[string]any{"text": "i", "flag": true, "number": int64(5), "real": 1.5},
		},
	}
	for name, filter := range filters {
		options := &admin.CreateRuleOptions{Name: to.Ptr(name), Filter: filter}
		if name == "sql" {
			options.Action = &admin.SQLAction{
				Expression: "SET sized = @yes", Parameters: map[string]any{"@yes": true},
			}
		}
		_, err := manage.CreateRule(t, topic, "sub", options)
		t.Must(err, "create rule "+name)
		got, err := manage.GetRule(t, topic, "sub", name, nil)
		t.Must(err, "get rule "+name)
		trial.Equal(t, name, got.Name, "name")
		trial.Equal(t, filter, got.Filter, "filter of "+name)
		trial.Equal(t, options.Action, got.Action, "action of "+name)
	}
	_, err := manage.CreateRule(t, topic, "sub", &admin.CreateRuleOptions{Name: to.Ptr("all"), Filter: &admin.TrueFilter{}})
	conflict(t, err, "create it twice")
	updated, err := manage.UpdateRule(t, topic, "sub", admin.RuleProperties{Name: "all", Filter: &admin.FalseFilter{}})
	t.Must(err, "update a rule")
	trial.Equal(t, admin.RuleFilter(&admin.FalseFilter{}), updated.Filter, "after the update")
	_, err = manage.CreateRule(t, topic, "sub", &admin.CreateRuleOptions{
		Name: to.Ptr("broken"), Filter: &admin.SQLFilter{Expression: "size >"},
	})
	var refusal *azcore.ResponseError
	t.True(errors.As(err, &refusal) && refusal.StatusCode == http.StatusBadRequest, "broken SQL is a bad request")

	count := 0
	for pages := manage.NewListRulesPager(topic, "sub", nil); pages.More(); {
		page, err := pages.NextPage(t)
		t.Must(err, "list rules")
		count += len(page.Rules)
	}
	trial.Equal(t, len(filters)+1, count, "rules with the default one")
	_, err = manage.DeleteRule(t, topic, "sub", "all", nil)
	t.Must(err, "delete a rule")
	gone, err := manage.GetRule(t, topic, "sub", "all", nil)
	t.Must(err, "get what is gone")
	t.True(gone == nil, "gone is nil")

	client := connect(t)
	for _, name := range []string{"none", "correlated", "$Default"} {
		_, err = manage.DeleteRule(t, topic, "sub", name, nil)
		t.Must(err, "delete rule "+name)
	}
	sendMessages(t, client, topic,
		&azservicebus.Message{Body: []byte("no"), ApplicationProperties: map[string]any{"size": int64(3), "color": "red"}},
		&azservicebus.Message{Body: []byte("yes"), ApplicationProperties: map[string]any{"size": int64(4), "color": "red"}})
	message := take(t, subscriber(t, client, topic, "sub"), 1)[0]
	trial.Equal(t, "yes", string(message.Body), "what the rule lets through")
	trial.Equal(t, true, message.ApplicationProperties["sized"] == true, "what the action set")
}

func adminRuntimeProperties(t *trial.Trial) {
	manage, client, queue := administrator(t), connect(t), t.Queue(nil)
	send(t, client, queue, "a", "b", "c")
	sender, err := client.NewSender(queue, nil)
	t.Must(err, "make a sender")
	_, err = sender.ScheduleMessages(t, []*azservicebus.Message{text("later")}, t.Clock().Add(time.Hour), nil)
	t.Must(err, "schedule")
	receiver := newReceiver(t, client, queue, nil)
	t.Must(receiver.DeadLetterMessage(t, receive(t, receiver, 1)[0], nil), "dead-letter")
	got, err := manage.GetQueueRuntimeProperties(t, queue, nil)
	t.Must(err, "get runtime properties")
	trial.Equal(t, []int32{2, 1, 1, 0, 0}, []int32{got.ActiveMessageCount, got.DeadLetterMessageCount,
		got.ScheduledMessageCount, got.TransferMessageCount, got.TransferDeadLetterMessageCount}, "counts")
	trial.Equal(t, int64(4), got.TotalMessageCount, "total")
	t.True(got.SizeInBytes > 0, "it has a size")
	t.True(!got.CreatedAt.IsZero() && !got.UpdatedAt.IsZero() && !got.AccessedAt.IsZero(), "it has times")
	gone, err := manage.GetQueueRuntimeProperties(t, "no-such-queue", nil)
	t.Must(err, "get runtime properties of nothing")
	t.True(gone == nil, "nothing is nil")

	topic := t.Topic(nil)
	t.Subscription(topic, "one", nil)
	t.Subscription(topic, "two", nil)
	send(t, client, topic, "a")
	ofTopic, err := manage.GetTopicRuntimeProperties(t, topic, nil)
	t.Must(err, "get a topic's")
	trial.Equal(t, int32(2), ofTopic.SubscriptionCount, "subscriptions")
	ofSubscription, err := manage.GetSubscriptionRuntimeProperties(t, topic, "one", nil)
	t.Must(err, "get a subscription's")
	trial.Equal(t, int32(1), ofSubscription.ActiveMessageCount, "messages")

	counted := map[string]int32{}
	for pages := manage.NewListSubscriptionsRuntimePropertiesPager(topic, nil); pages.More(); {
		page, err := pages.NextPage(t)
		t.Must(err, "list subscriptions' runtime properties")
		for _, item := range page.SubscriptionRuntimeProperties {
			counted[item.SubscriptionName] = item.ActiveMessageCount
		}
	}
	trial.Equal(t, map[string]int32{"one": 1, "two": 1}, counted, "messages by subscription")
	found := false
	for pages := manage.NewListQueuesRuntimePropertiesPager(nil); pages.More(); {
		page, err := pages.NextPage(t)
		t.Must(err, "list queues' runtime properties")
		for _, item := range page.QueueRuntimeProperties {
			found = found || item.QueueName == queue && item.ActiveMessageCount == 2
		}
	}
	t.True(found, "the list has the same counts")
}

// ruleValuePrecision reads what other clients write, too: this SDK writes six digits of a double.
func ruleValuePrecision(t *trial.Trial) {
	manage, topic := administrator(t), t.Topic(nil)
	t.Subscription(topic, "sub", nil)
	when := time.Date(2030, 1, 2, 3, 4, 5, 123456700, time.UTC)
	wanted := map[string]any{"when": when, "huge": math.MaxFloat64, "millionth": 0.000001}
	_, err := manage.CreateRule(t, topic, "sub", &admin.CreateRuleOptions{
		Name: to.Ptr("own"), Filter: &admin.CorrelationFilter{ApplicationProperties: wanted},
	})
	t.Must(err, "create a rule")
	own, err := manage.GetRule(t, topic, "sub", "own", nil)
	t.Must(err, "get the rule")
	trial.Equal(t, wanted, own.Filter.(*admin.CorrelationFilter).ApplicationProperties, "own values")

	value := func(name, kind, text string) string {
		return fmt.Sprintf(`<KeyValueOfstringanyType><Key>%s</Key><Value i:type="d:%s" `+
			`xmlns:d="http://www.w3.org/2001/XMLSchema">%s</Value></KeyValueOfstringanyType>`, name, kind, text)
	}
	t.Filtered(topic, "others", `<Filter i:type="CorrelationFilter"><Properties>`+
		value("when", "dateTime", "2030-01-02T03:04:05.1234567Z")+value("most", "double", "INF")+
		value("least", "double", "-INF")+`</Properties></Filter>`, "")
	others, err := manage.GetRule(t, topic, "others", "only", nil)
	t.Must(err, "get the other rule")
	trial.Equal(t, map[string]any{
		"when": when, "most": math.Inf(1), "least": math.Inf(-1),
	}, others.Filter.(*admin.CorrelationFilter).ApplicationProperties, "values of others")
}

// forwardingRoundTrip writes a forwarding queue back as it was read.
func forwardingRoundTrip(t *trial.Trial) {
	manage, client, last, first := administrator(t), connect(t), t.Queue(nil), t.Name("forwarding")
	_, err := manage.CreateQueue(t, first, &admin.CreateQueueOptions{
		Properties: &admin.QueueProperties{ForwardTo: to.Ptr(last)},
	})
	t.Must(err, "create a queue")
	read, err := manage.GetQueue(t, first, nil)
	t.Must(err, "get the queue")
	t.True(strings.HasSuffix(strings.TrimSuffix(*read.ForwardTo, "/"), "/"+last), "it names the other queue")
	_, err = manage.UpdateQueue(t, first, read.QueueProperties, nil)
	t.Must(err, "write it back")
	again, err := manage.GetQueue(t, first, nil)
	t.Must(err, "get the queue again")
	trial.Equal(t, *read.ForwardTo, *again.ForwardTo, "where it forwards to")

	sendMessages(t, client, first, &azservicebus.Message{
		Body: []byte("passed on"), MessageID: to.Ptr("id"), CorrelationID: to.Ptr("7"), Subject: to.Ptr("order"),
		ContentType: to.Ptr("text/plain"), ReplyTo: to.Ptr("answers"), To: to.Ptr("somewhere"),
		PartitionKey: to.Ptr("key"), TimeToLive: to.Ptr(time.Hour), ApplicationProperties: map[string]any{"size": int64(5)},
	})
	message := take(t, newReceiver(t, client, last, nil), 1)[0]
	trial.Equal(t, []string{"passed on", "id", "7", "order", "text/plain", "answers", "somewhere", "key"}, []string{
		string(message.Body), message.MessageID, *message.CorrelationID, *message.Subject,
		*message.ContentType, *message.ReplyTo, *message.To, *message.PartitionKey,
	}, "properties")
	trial.Equal(t, time.Hour, *message.TimeToLive, "time to live")
	trial.Equal(t, map[string]any{"size": int64(5)}, message.ApplicationProperties, "application properties")
	trial.Equal(t, int64(1), *message.EnqueuedSequenceNumber, "sequence number where it was sent")
	trial.Equal(t, 1, message.DeliveryCount, "delivery count")
}
