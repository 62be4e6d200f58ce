package main

import (
	"context"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"peeklock.test/trial"
)

// receiveNoPrefetch also meets the SDK's habit of leaving credit behind: what comes for it between
// two receives is released at once and must come again unharmed.
func receiveNoPrefetch(t *trial.Trial) {
	client, queue := connect(t), t.Queue(nil)
	receiver := newReceiver(t, client, queue, nil)
	send(t, client, queue, "a", "b", "c")
	trial.Equal(t, []string{"a", "b"}, bodies(take(t, receiver, 2)), "no more than asked for")
	trial.Equal(t, []string{"c"}, bodies(take(t, receiver, 1)), "the next one")

	send(t, client, queue, "d")
	some, err := receiver.ReceiveMessages(t, 50, nil)
	t.Must(err, "ask for more than there is")
	trial.Equal(t, []string{"d"}, bodies(some), "what there is")
	completeAll(t, receiver, some)
	send(t, client, queue, "e", "f", "g")
	late := receive(t, receiver, 3)
	arrived := bodies(late)
	slices.Sort(arrived) // what is on its way back may be overtaken
	trial.Equal(t, []string{"e", "f", "g"}, arrived, "what came between two receives")
	for _, message := range late {
		trial.Equal(t, 1, message.DeliveryCount, "delivery count")
	}
	completeAll(t, receiver, late)
	nothing(t, receiver)
}

func receiveAndDelete(t *trial.Trial) {
	client, queue := connect(t), t.Queue(nil)
	send(t, client, queue, "a", "b", "c")
	receiver := newReceiver(t, client, queue, &azservicebus.ReceiverOptions{
		ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete,
	})
	messages := receive(t, receiver, 3)
	trial.Equal(t, []string{"a", "b", "c"}, bodies(messages), "what arrived")
	t.True(receiver.CompleteMessage(t, messages[0], nil) != nil, "there is nothing to settle")
	t.Must(receiver.Close(t), "close")
	nothing(t, newReceiver(t, client, queue, nil))
}

func peek(t *trial.Trial) {
	client, queue := connect(t), t.Queue(nil)
	send(t, client, queue, "a", "b", "c")
	receiver := newReceiver(t, client, queue, nil)
	locked := receive(t, receiver, 1)
	first, err := receiver.PeekMessages(t, 2, nil)
	t.Must(err, "peek")
	trial.Equal(t, []string{"a", "b"}, bodies(first), "the first two, locked or not")
	rest, err := receiver.PeekMessages(t, 10, nil)
	t.Must(err, "peek on")
	trial.Equal(t, []string{"c"}, bodies(rest), "the rest")
	none, err := receiver.PeekMessages(t, 10, nil)
	t.Must(err, "peek beyond the end")
	trial.Equal(t, []string{}, bodies(none), "beyond the end")
	again, err := receiver.PeekMessages(t, 1, &azservicebus.PeekMessagesOptions{FromSequenceNumber: to.Ptr(int64(2))})
	t.Must(err, "peek from a number")
	trial.Equal(t, []string{"b"}, bodies(again), "from a number")
	trial.Equal(t, int64(2), *again[0].SequenceNumber, "sequence number")
	completeAll(t, receiver, locked)
	trial.Equal(t, []string{"b", "c"}, bodies(take(t, receiver, 2)), "peeking locked nothing")
}

func renewLock(t *trial.Trial) {
	client, queue := connect(t), t.Queue(trial.Properties{"LockDuration": "PT30S"})
	send(t, client, queue, "kept")
	receiver := newReceiver(t, client, queue, nil)
	message := receive(t, receiver, 1)[0]
	for range 3 {
		before := *message.LockedUntil
		t.Pass(20 * time.Second)
		t.Must(receiver.RenewMessageLock(t, message, nil), "renew")
		t.True(message.LockedUntil.After(before), "the lock lasts longer")
	}
	t.Must(receiver.CompleteMessage(t, message, nil), "complete after a minute")
	nothing(t, receiver)
}

func lockLost(t *trial.Trial) {
	client, queue := connect(t), t.Queue(trial.Properties{"LockDuration": "PT30S"})
	send(t, client, queue, "late")
	receiver := newReceiver(t, client, queue, nil)
	message := receive(t, receiver, 1)[0]
	t.Pass(31 * time.Second)
	refused(t, azservicebus.CodeLockLost, receiver.RenewMessageLock(t, message, nil), "renew a lost lock")
	refused(t, azservicebus.CodeLockLost, receiver.CompleteMessage(t, message, nil), "complete without a lock")
	again := receive(t, receiver, 1)[0]
	trial.Equal(t, "late", string(again.Body), "the message came back")
	trial.Equal(t, 2, again.DeliveryCount, "delivery count")
	t.Must(receiver.CompleteMessage(t, again, nil), "complete under the new lock")
}

func reconnectAfterRestart(t *trial.Trial) {
	client, queue := connect(t), t.Queue(nil)
	sender, err := client.NewSender(queue, nil)
	t.Must(err, "make a sender")
	receiver := newReceiver(t, client, queue, nil)
	t.Must(sender.SendMessage(t, text("first"), nil), "send")
	take(t, receiver, 1)
	t.Must(sender.SendMessage(t, text("before"), nil), "send before the restart")
	t.Must(t.Restart(), "restart the broker")
	t.Must(sender.SendMessage(t, text("after"), nil), "send with the old sender")
	trial.Equal(t, []string{"before", "after"}, bodies(take(t, receiver, 2)), "what the old receiver gets")
}

func cleanClose(t *trial.Trial) {
	client, queue := connect(t), t.Queue(nil)
	sender, err := client.NewSender(queue, nil)
	t.Must(err, "make a sender")
	receiver := newReceiver(t, client, queue, nil)
	t.Must(sender.SendMessage(t, text("x"), nil), "send")
	message := receive(t, receiver, 1)[0]
	ctx, cancel := context.WithTimeout(t, 5*time.Second)
	defer cancel()
	t.Must(sender.Close(ctx), "close the sender")
	t.Must(receiver.Close(ctx), "close the receiver with a message unsettled")
	_, err = receiver.ReceiveMessages(ctx, 1, nil)
	refused(t, azservicebus.CodeClosed, err, "use a closed receiver")

	// Its lock stands, and whoever knows the token can still settle it.
	other := newReceiver(t, client, queue, nil)
	nothing(t, other)
	t.Must(other.CompleteMessage(ctx, &azservicebus.ReceivedMessage{LockToken: message.LockToken}, nil), "complete by token")
	t.Must(other.Close(ctx), "close the other receiver")
	t.Must(client.Close(ctx), "close the client")
	t.True(ctx.Err() == nil, "closing takes no time")
	t.NobodyConnected()
}
