package main

import (
	"errors"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
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
