package main

import (
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"peeklock.test/trial"
)

func subscriber(t *trial.Trial, client *azservicebus.Client, topic, subscription string) *azservicebus.Receiver {
	receiver, err := client.NewReceiverForSubscription(topic, subscription, nil)
	t.Must(err, "make a receiver")
	return receiver
}

func topicTrueFilter(t *trial.Trial) {
	client, topic := connect(t), t.Topic(nil)
	t.Subscription(topic, "one", nil)
	t.Subscription(topic, "two", nil)
	send(t, client, topic, "a", "b")
	for _, name := range []string{"one", "two"} {
		receiver := subscriber(t, client, topic, name)
		trial.Equal(t, []string{"a", "b"}, bodies(take(t, receiver, 2)), name)
	}
	receiver := subscriber(t, client, topic, "one")
	send(t, client, topic, "bad")
	t.Must(receiver.DeadLetterMessage(t, receive(t, receiver, 1)[0], nil), "dead-letter")
	dead, err := client.NewReceiverForSubscription(topic, "one", &azservicebus.ReceiverOptions{
		SubQueue: azservicebus.SubQueueDeadLetter,
	})
	t.Must(err, "make a dead-letter receiver")
	trial.Equal(t, []string{"bad"}, bodies(take(t, dead, 1)), "dead letters of a subscription")
}

func topicSQLFilter(t *trial.Trial) {
	client, topic := connect(t), t.Topic(nil)
	t.Filtered(topic, "red",
		`<Filter i:type="SqlFilter"><SqlExpression>color = 'red' AND size &gt; 3</SqlExpression></Filter>`,
		`<Action i:type="SqlRuleAction"><SqlExpression>SET size = size + 1; REMOVE color</SqlExpression></Action>`)
	t.Filtered(topic, "labelled",
		`<Filter i:type="SqlFilter"><SqlExpression>sys.Label LIKE 'x%'</SqlExpression></Filter>`, "")
	sendMessages(t, client, topic,
		&azservicebus.Message{Body: []byte("big red"), ApplicationProperties: map[string]any{"color": "red", "size": int64(4)}},
		&azservicebus.Message{Body: []byte("small red"), ApplicationProperties: map[string]any{"color": "red", "size": int64(3)}},
		&azservicebus.Message{Body: []byte("x-ray"), Subject: to.Ptr("xyz")},
	)
	red, labelled := subscriber(t, client, topic, "red"), subscriber(t, client, topic, "labelled")
	changed := take(t, red, 1)
	trial.Equal(t, []string{"big red"}, bodies(changed), "by application property")
	_, colored := changed[0].ApplicationProperties["color"]
	trial.Equal(t, any(int64(5)), changed[0].ApplicationProperties["size"], "what the action set")
	t.True(!colored, "what the action removed is gone")
	trial.Equal(t, []string{"x-ray"}, bodies(take(t, labelled, 1)), "by subject")
	nothing(t, red)
	nothing(t, labelled)
}

func topicCorrelationFilter(t *trial.Trial) {
	client, topic := connect(t), t.Topic(nil)
	t.Filtered(topic, "mine",
		`<Filter i:type="CorrelationFilter"><CorrelationId>42</CorrelationId><Label>order</Label></Filter>`, "")
	t.Filtered(topic, "north", `<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType>`+
		`<Key>region</Key><Value i:type="d6p1:string" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">north</Value>`+
		`</KeyValueOfstringanyType></Properties></Filter>`, "")
	sendMessages(t, client, topic,
		&azservicebus.Message{Body: []byte("both"), CorrelationID: to.Ptr("42"), Subject: to.Ptr("order")},
		&azservicebus.Message{Body: []byte("half"), CorrelationID: to.Ptr("42"), Subject: to.Ptr("offer")},
		&azservicebus.Message{Body: []byte("cold"), ApplicationProperties: map[string]any{"region": "north"}},
	)
	mine, north := subscriber(t, client, topic, "mine"), subscriber(t, client, topic, "north")
	trial.Equal(t, []string{"both"}, bodies(take(t, mine, 1)), "all conditions must hold")
	trial.Equal(t, []string{"cold"}, bodies(take(t, north, 1)), "by application property")
	nothing(t, mine)
	nothing(t, north)
}
