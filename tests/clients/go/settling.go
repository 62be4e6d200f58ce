package main

import (
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"peeklock.test/trial"
)

func complete(t *trial.Trial) {
	client, queue := connect(t), t.Queue(nil)
	send(t, client, queue, "a", "b")
	receiver := newReceiver(t, client, queue, nil)
	messages := receive(t, receiver, 2)
	t.Must(receiver.CompleteMessage(t, messages[1], nil), "complete the second")
	t.Must(receiver.CompleteMessage(t, messages[0], nil), "complete the first")
	nothing(t, receiver)
	left, err := receiver.PeekMessages(t, 10, nil)
	t.Must(err, "peek")
	trial.Equal(t, []string{}, bodies(left), "what is left")
}

func abandonWithProperties(t *trial.Trial) {
	client, queue := connect(t), t.Queue(nil)
	sendMessages(t, client, queue, &azservicebus.Message{
		Body: []byte("again"), ApplicationProperties: map[string]any{"kept": "yes", "changed": "no"},
	})
	receiver := newReceiver(t, client, queue, nil)
	message := receive(t, receiver, 1)[0]
	t.Must(receiver.AbandonMessage(t, message, &azservicebus.AbandonMessageOptions{
		PropertiesToModify: map[string]any{"changed": "yes", "added": int64(7), "flag": true},
	}), "abandon")
	again := receive(t, receiver, 1)[0]
	trial.Equal(t, 2, again.DeliveryCount, "delivery count")
	trial.Equal(t, map[string]any{"kept": "yes", "changed": "yes", "added": int64(7), "flag": true},
		again.ApplicationProperties, "properties")
	t.Must(receiver.CompleteMessage(t, again, nil), "complete")
}

func deferAndFetch(t *trial.Trial) {
	client, queue := connect(t), t.Queue(nil)
	send(t, client, queue, "later", "now", "never")
	receiver := newReceiver(t, client, queue, nil)
	later := receive(t, receiver, 1)[0]
	t.Must(receiver.DeferMessage(t, later, &azservicebus.DeferMessageOptions{
		PropertiesToModify: map[string]any{"why": "busy"},
	}), "defer")
	trial.Equal(t, []string{"now"}, bodies(take(t, receiver, 1)), "receives skip it")

	peeked, err := receiver.PeekMessages(t, 1, nil)
	t.Must(err, "peek")
	trial.Equal(t, azservicebus.MessageStateDeferred, peeked[0].State, "state")

	fetched := fetch(t, receiver, *later.SequenceNumber)
	trial.Equal(t, "later", string(fetched.Body), "what was deferred")
	trial.Equal(t, map[string]any{"why": "busy"}, fetched.ApplicationProperties, "properties")
	t.Must(receiver.RenewMessageLock(t, fetched, nil), "renew the lock of a fetched message")
	t.Must(receiver.DeferMessage(t, fetched, nil), "defer it again")
	fetched = fetch(t, receiver, *later.SequenceNumber)
	t.Must(receiver.CompleteMessage(t, fetched, nil), "complete it")
	_, err = receiver.ReceiveDeferredMessages(t, []int64{*later.SequenceNumber}, nil)
	refused(t, azservicebus.CodeNotFound, err, "fetch what is gone")

	never := receive(t, receiver, 1)[0]
	t.Must(receiver.DeferMessage(t, never, nil), "defer the third")
	t.Must(receiver.DeadLetterMessage(t, fetch(t, receiver, *never.SequenceNumber), &azservicebus.DeadLetterOptions{
		Reason: to.Ptr("never"),
	}), "dead-letter it")
	dead := take(t, deadLetters(t, client, queue), 1)[0]
	trial.Equal(t, "never", *dead.DeadLetterReason, "reason")
}

func fetch(t *trial.Trial, receiver *azservicebus.Receiver, number int64) *azservicebus.ReceivedMessage {
	fetched, err := receiver.ReceiveDeferredMessages(t, []int64{number}, nil)
	t.Must(err, "fetch a deferred message")
	trial.Equal(t, 1, len(fetched), "messages fetched")
	return fetched[0]
}

func deadLetterAndReadBack(t *trial.Trial) {
	client, queue := connect(t), t.Queue(nil)
	sendMessages(t, client, queue, &azservicebus.Message{
		Body: []byte("bad"), MessageID: to.Ptr("bad-1"), ApplicationProperties: map[string]any{"own": "stays"},
	}, text("worse"))
	receiver := newReceiver(t, client, queue, nil)
	messages := receive(t, receiver, 2)
	t.Must(receiver.DeadLetterMessage(t, messages[0], &azservicebus.DeadLetterOptions{
		Reason: to.Ptr("unreadable"), ErrorDescription: to.Ptr("line 3"),
		PropertiesToModify: map[string]any{"attempt": int64(1)},
	}), "dead-letter")
	t.Must(receiver.DeadLetterMessage(t, messages[1], nil), "dead-letter without a word")
	nothing(t, receiver)

	dead := take(t, deadLetters(t, client, queue), 2)
	trial.Equal(t, []string{"bad", "worse"}, bodies(dead), "what is dead")
	trial.Equal(t, "bad-1", dead[0].MessageID, "message id")
	trial.Equal(t, "unreadable", *dead[0].DeadLetterReason, "reason")
	trial.Equal(t, "line 3", *dead[0].DeadLetterErrorDescription, "description")
	trial.Equal(t, "stays", dead[0].ApplicationProperties["own"], "own property")
	trial.Equal(t, int64(1), dead[0].ApplicationProperties["attempt"].(int64), "added property")
}
