package main

import (
	"errors"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"peeklock.test/trial"
)

var once = &azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}}

// strictClaims has keys of each claim do what they may, and be refused what they may not.
func strictClaims(t *trial.Trial) {
	queue := t.StrictQueue
	sending := connectWith(t, t.Strict("SEND"), once)
	send(t, sending, queue, "sent")
	deaf := newReceiver(t, sending, queue, nil)
	_, err := deaf.ReceiveMessages(t, 1, nil)
	refused(t, azservicebus.CodeUnauthorizedAccess, err, "receive with a key for sending")
	_, err = deaf.PeekMessages(t, 1, nil)
	refused(t, azservicebus.CodeUnauthorizedAccess, err, "peek with a key for sending")

	listening := connectWith(t, t.Strict("LISTEN"), once)
	mute, err := listening.NewSender(queue, nil)
	t.Must(err, "make a sender")
	refused(t, azservicebus.CodeUnauthorizedAccess, mute.SendMessage(t, text("x"), nil), "send with a key for listening")
	_, err = mute.ScheduleMessages(t, []*azservicebus.Message{text("x")}, time.Now().Add(time.Hour), nil)
	refused(t, azservicebus.CodeUnauthorizedAccess, err, "schedule with a key for listening")
	receiver := newReceiver(t, listening, queue, nil)
	peeked, err := receiver.PeekMessages(t, 10, nil)
	t.Must(err, "peek")
	trial.Equal(t, []string{"sent"}, bodies(peeked), "what is peeked")
	trial.Equal(t, []string{"sent"}, bodies(take(t, receiver, 1)), "what is received")

	for _, claim := range []string{"SEND", "LISTEN"} {
		manage := administratorWith(t, t.Strict(claim))
		_, err = manage.GetQueue(t, queue, nil)
		unauthorized(t, err, "get a queue with a key to "+claim)
		_, err = manage.CreateQueue(t, t.Name("refused"), nil)
		unauthorized(t, err, "create a queue with a key to "+claim)
	}

	manage, name := administratorWith(t, t.Strict("MANAGE")), t.Name("managed")
	_, err = manage.CreateQueue(t, name, &admin.CreateQueueOptions{})
	t.Must(err, "create a queue")
	managing := connectWith(t, t.Strict("MANAGE"), once)
	send(t, managing, name, "managed")
	trial.Equal(t, []string{"managed"}, bodies(take(t, newReceiver(t, managing, name, nil), 1)), "what is received")
	_, err = manage.DeleteQueue(t, name, nil)
	t.Must(err, "delete the queue")
}

func unauthorized(t *trial.Trial, err error, doing string) {
	trial.Equal(t, http.StatusUnauthorized, trial.Fails[*azcore.ResponseError](t, err, doing).StatusCode, doing)
}

// fullBatch adds smaller and smaller messages, so that hardly a byte is left.
func fullBatch(t *trial.Trial) {
	client := connectWith(t, t.Strict("MANAGE"), once)
	sender, err := client.NewSender(t.StrictQueue, nil)
	t.Must(err, "make a sender")
	batch, err := sender.NewMessageBatch(t, nil)
	t.Must(err, "make a batch")
	for _, size := range []int{5000, 500, 50, 5, 0} {
		for err = nil; err == nil; {
			err = batch.AddMessage(&azservicebus.Message{Body: make([]byte, size)}, nil)
		}
		t.True(errors.Is(err, azservicebus.ErrMessageTooLarge), "the batch is full")
	}
	t.Must(sender.SendMessageBatch(t, batch, nil), "send the batch")
	take(t, newReceiver(t, client, t.StrictQueue, nil), int(batch.NumMessages()))
}
