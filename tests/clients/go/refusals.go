package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/Azure/go-amqp"

	"peeklock.test/trial"
)

func errorNotFound(t *trial.Trial) {
	client := connect(t)
	sender, err := client.NewSender("no-such-queue", nil)
	t.Must(err, "make a sender")
	err = sender.SendMessage(t, text("x"), nil)
	refused(t, azservicebus.CodeNotFound, err, "send to nowhere")
	t.True(strings.Contains(err.Error(), "TrackingId"), "the refusal can be traced")

	receiver := newReceiver(t, client, "no-such-queue", nil)
	_, err = receiver.ReceiveMessages(t, 1, nil)
	refused(t, azservicebus.CodeNotFound, err, "receive from nowhere")

	passOne(t, client)
}

func errorUnauthorized(t *trial.Trial) {
	wrong := strings.Replace(t.ConnectionString, "SAS_KEY_VALUE", "wrong", 1)
	client, queue := connectWith(t, wrong, nil), t.Queue(nil)
	sender, err := client.NewSender(queue, nil)
	t.Must(err, "make a sender")
	refused(t, azservicebus.CodeUnauthorizedAccess, sender.SendMessage(t, text("x"), nil), "send with a wrong key")
}

func errorQuota(t *trial.Trial) {
	client, queue := connect(t), t.Queue(trial.Properties{"MaxSizeInMegabytes": 1})
	sender, err := client.NewSender(queue, nil)
	t.Must(err, "make a sender")
	block := &azservicebus.Message{Body: make([]byte, 200_000)}
	for range 10 {
		if err = sender.SendMessage(t, block, nil); err != nil {
			break
		}
	}
	refusal := trial.Fails[*amqp.Error](t, err, "send to a full queue")
	trial.Equal(t, amqp.ErrCondResourceLimitExceeded, refusal.Condition, "condition")
	receiver := newReceiver(t, client, queue, nil)
	take(t, receiver, 3)
	t.Must(sender.SendMessage(t, block, nil), "send when there is room again")
}

func errorTooLarge(t *trial.Trial) {
	client, queue := connect(t), t.Queue(trial.Properties{"MaxMessageSizeInKilobytes": 1024})
	sender, err := client.NewSender(queue, nil)
	t.Must(err, "make a sender")
	large := &azservicebus.Message{Body: make([]byte, 1<<21)}
	t.True(errors.Is(sender.SendMessage(t, large, nil), azservicebus.ErrMessageTooLarge), "two megabytes are refused")
	batch, err := sender.NewMessageBatch(t, nil)
	t.Must(err, "make a batch")
	t.True(errors.Is(batch.AddMessage(large, nil), azservicebus.ErrMessageTooLarge), "nor do they fit into a batch")
	t.Must(sender.SendMessage(t, text("small"), nil), "send something smaller on the same link")
}

// errorNotFoundOperations tries everything on entities that do not exist.
func errorNotFoundOperations(t *trial.Trial) {
	client, nowhere, topic := connect(t), t.Name("nowhere"), t.Topic(nil)
	sender, err := client.NewSender(nowhere, nil)
	t.Must(err, "make a sender")
	receiver := newReceiver(t, client, nowhere, nil)
	subscriber, err := client.NewReceiverForSubscription(topic, "nowhere", nil)
	t.Must(err, "make a receiver for a subscription")
	calls := []struct {
		doing string
		call  func() error
	}{
		{"send", func() error { return sender.SendMessage(t, text("x"), nil) }},
		{"schedule", func() error {
			_, err := sender.ScheduleMessages(t, []*azservicebus.Message{text("x")}, t.Clock().Add(time.Hour), nil)
			return err
		}},
		{"cancel", func() error { return sender.CancelScheduledMessages(t, []int64{1}, nil) }},
		{"make a batch", func() error { _, err := sender.NewMessageBatch(t, nil); return err }},
		{"receive", func() error { _, err := receiver.ReceiveMessages(t, 1, nil); return err }},
		{"peek", func() error { _, err := receiver.PeekMessages(t, 1, nil); return err }},
		{"fetch", func() error { _, err := receiver.ReceiveDeferredMessages(t, []int64{1}, nil); return err }},
		{"receive from a subscription", func() error { _, err := subscriber.ReceiveMessages(t, 1, nil); return err }},
		{"peek in a subscription", func() error { _, err := subscriber.PeekMessages(t, 1, nil); return err }},
		{"accept a session", func() error { _, err := client.AcceptSessionForQueue(t, nowhere, "s", nil); return err }},
		{"accept any session", func() error { _, err := client.AcceptNextSessionForQueue(t, nowhere, nil); return err }},
	}
	var wrong []string
	for _, one := range calls {
		began := time.Now()
		err := one.call()
		var known *azservicebus.Error
		if !errors.As(err, &known) || known.Code != azservicebus.CodeNotFound {
			wrong = append(wrong, fmt.Sprintf("%s: %v", one.doing, err))
		}
		if took := time.Since(began); took > 5*time.Second {
			wrong = append(wrong, fmt.Sprintf("%s: after %v", one.doing, took))
		}
	}
	trial.Equal(t, nil, wrong, "operations that were not refused as not found")

	manage := administrator(t)
	queue, err := manage.GetQueue(t, nowhere, nil)
	t.True(err == nil && queue == nil, "a queue that is missing is nil")
	count, err := manage.GetQueueRuntimeProperties(t, nowhere, nil)
	t.True(err == nil && count == nil, "so are its counts")
	found, err := manage.GetTopic(t, nowhere, nil)
	t.True(err == nil && found == nil, "a topic that is missing is nil")
	subscription, err := manage.GetSubscription(t, topic, nowhere, nil)
	t.True(err == nil && subscription == nil, "a subscription that is missing is nil")
	rule, err := manage.GetRule(t, topic, nowhere, "rule", nil)
	t.True(err == nil && rule == nil, "a rule that is missing is nil")
	_, err = manage.DeleteTopic(t, nowhere, nil)
	missing(t, err, "delete a topic")
	_, err = manage.CreateSubscription(t, nowhere, "sub", nil)
	missing(t, err, "create a subscription")
	_, err = manage.CreateRule(t, topic, nowhere, &admin.CreateRuleOptions{Name: to.Ptr("rule")})
	missing(t, err, "create a rule")
}
