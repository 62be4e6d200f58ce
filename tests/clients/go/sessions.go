package main

import (
	"context"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"peeklock.test/trial"
)

func sessionQueue(t *trial.Trial) string {
	return t.Queue(trial.Properties{"RequiresSession": true, "LockDuration": "PT30S"})
}

func inSession(session, body string) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(body), SessionID: to.Ptr(session)}
}

func accept(t *trial.Trial, client *azservicebus.Client, queue, session string) *azservicebus.SessionReceiver {
	receiver, err := client.AcceptSessionForQueue(t, queue, session, nil)
	t.Must(err, "accept a session")
	return receiver
}

func sessionNamed(t *trial.Trial) {
	client, queue := connect(t), sessionQueue(t)
	sendMessages(t, client, queue, inSession("a", "a1"), inSession("b", "b1"), inSession("a", "a2"), inSession("", "none"))
	receiver := accept(t, client, queue, "a")
	trial.Equal(t, "a", receiver.SessionID(), "session id")
	t.True(receiver.LockedUntil().After(t.Clock()), "the session is locked for a while")
	messages := receive(t, receiver, 2)
	trial.Equal(t, []string{"a1", "a2"}, bodies(messages), "its own messages, in order")
	trial.Equal(t, "a", *messages[0].SessionID, "session id of a message")
	nothing(t, receiver)
	peeked, err := receiver.PeekMessages(t, 10, nil)
	t.Must(err, "peek in a session")
	t.True(len(peeked) >= 2, "peeking sees the session's messages")

	t.Must(receiver.AbandonMessage(t, messages[0], nil), "abandon")
	again := receive(t, receiver, 1)[0]
	trial.Equal(t, "a1", string(again.Body), "an abandoned message comes next")
	t.Must(receiver.DeferMessage(t, again, nil), "defer in a session")
	fetched, err := receiver.ReceiveDeferredMessages(t, []int64{*again.SequenceNumber}, nil)
	t.Must(err, "fetch in a session")
	t.Must(receiver.CompleteMessage(t, fetched[0], nil), "complete what was deferred")
	t.Must(receiver.DeadLetterMessage(t, messages[1], nil), "dead-letter in a session")
	t.Must(receiver.Close(t), "close")
	trial.Equal(t, []string{"a2"}, bodies(take(t, deadLetters(t, client, queue), 1)), "dead letters")

	empty := accept(t, client, queue, "")
	trial.Equal(t, []string{"none"}, bodies(take(t, empty, 1)), "the empty name is a name")
}

func sessionNextAvailable(t *trial.Trial) {
	client, queue := connect(t), sessionQueue(t)
	sendMessages(t, client, queue, inSession("a", "a1"), inSession("b", "b1"))
	found := map[string][]string{}
	for range 2 {
		receiver, err := client.AcceptNextSessionForQueue(t, queue, nil)
		t.Must(err, "accept any session")
		found[receiver.SessionID()] = bodies(take(t, receiver, 1))
	}
	trial.Equal(t, map[string][]string{"a": {"a1"}, "b": {"b1"}}, found, "sessions and their messages")

	topic := t.Topic(nil)
	t.Subscription(topic, "sub", trial.Properties{"RequiresSession": true})
	sendMessages(t, client, topic, inSession("c", "c1"))
	receiver, err := client.AcceptNextSessionForSubscription(t, topic, "sub", nil)
	t.Must(err, "accept any session of a subscription")
	trial.Equal(t, "c", receiver.SessionID(), "session id")
	trial.Equal(t, []string{"c1"}, bodies(take(t, receiver, 1)), "its messages")
}

// sessionTwoHolders has two connections share a queue: each gets its own session's stream.
func sessionTwoHolders(t *trial.Trial) {
	one, two, queue := connect(t), connect(t), sessionQueue(t)
	first, second := accept(t, one, queue, "a"), accept(t, two, queue, "b")
	for _, number := range []string{"1", "2", "3"} {
		sendMessages(t, one, queue, inSession("a", "a"+number), inSession("b", "b"+number))
	}
	trial.Equal(t, []string{"b1", "b2", "b3"}, bodies(take(t, second, 3)), "the second holder")
	trial.Equal(t, []string{"a1", "a2", "a3"}, bodies(take(t, first, 3)), "the first holder")
	t.Must(first.Close(t), "close the first")
	third := accept(t, two, queue, "a")
	sendMessages(t, one, queue, inSession("a", "a4"))
	trial.Equal(t, []string{"a4"}, bodies(take(t, third, 1)), "the next holder")
}

func sessionState(t *trial.Trial) {
	client, queue := connect(t), sessionQueue(t)
	receiver := accept(t, client, queue, "s")
	state := func(receiver *azservicebus.SessionReceiver) []byte {
		state, err := receiver.GetSessionState(t, nil)
		t.Must(err, "get the state")
		return state
	}
	trial.Equal(t, nil, state(receiver), "before it is set")
	t.Must(receiver.SetSessionState(t, []byte("step 2"), nil), "set the state")
	trial.Equal(t, "step 2", string(state(receiver)), "after it was set")
	t.Must(receiver.Close(t), "close")
	receiver = accept(t, client, queue, "s")
	trial.Equal(t, "step 2", string(state(receiver)), "for the next holder")
	t.Must(receiver.SetSessionState(t, nil, nil), "clear the state")
	trial.Equal(t, nil, state(receiver), "after it was cleared")
}

func sessionRenew(t *trial.Trial) {
	client, queue := connect(t), sessionQueue(t)
	sendMessages(t, client, queue, inSession("s", "kept"))
	receiver := accept(t, client, queue, "s")
	message := receive(t, receiver, 1)[0]
	for range 3 {
		before := receiver.LockedUntil()
		t.Pass(20 * time.Second)
		t.Must(receiver.RenewSessionLock(t, nil), "renew")
		t.True(receiver.LockedUntil().After(before), "the lock lasts longer")
	}
	t.Must(receiver.CompleteMessage(t, message, nil), "complete after a minute")
}

func sessionLockLost(t *trial.Trial) {
	client, queue := connectWith(t, t.ConnectionString, &azservicebus.ClientOptions{
		RetryOptions: azservicebus.RetryOptions{MaxRetries: -1},
	}), sessionQueue(t)
	sendMessages(t, client, queue, inSession("s", "late"))
	receiver := accept(t, client, queue, "s")
	message := receive(t, receiver, 1)[0]
	t.Pass(31 * time.Second)
	refused(t, azservicebus.CodeLockLost, receiver.RenewSessionLock(t, nil), "renew a lost session")

	other := accept(t, connect(t), queue, "s")
	// The SDK's answer to a lost lock is to accept the session again, which someone else holds now.
	refusal := trial.Fails[*amqp.Error](t, receiver.CompleteMessage(t, message, nil), "complete without the session")
	trial.Equal(t, "com.microsoft:session-cannot-be-locked", string(refusal.Condition), "condition")
	again := receive(t, other, 1)[0]
	trial.Equal(t, "late", string(again.Body), "the next holder gets it")
	trial.Equal(t, 2, again.DeliveryCount, "delivery count")
	t.Must(other.CompleteMessage(t, again, nil), "complete as the new holder")
}

func sessionNoneAvailable(t *trial.Trial) {
	client, queue := connect(t), sessionQueue(t)
	waiting := make(chan error, 1)
	go func() {
		_, err := client.AcceptNextSessionForQueue(t, queue, nil)
		waiting <- err
	}()
	// The SDK names no time, so the broker's own limit of about a minute ends the wait.
	for {
		select {
		case err := <-waiting:
			refused(t, azservicebus.CodeTimeout, err, "accept where there is no session")
			return
		case <-time.After(quiet):
			t.Pass(30 * time.Second)
		}
	}
}

func errorSessionHeld(t *trial.Trial) {
	client, queue := connect(t), sessionQueue(t)
	holder := accept(t, client, queue, "s")
	_, err := client.AcceptSessionForQueue(t, queue, "s", nil)
	refusal := trial.Fails[*amqp.Error](t, err, "accept a held session")
	trial.Equal(t, "com.microsoft:session-cannot-be-locked", string(refusal.Condition), "condition")
	t.Must(holder.Close(context.Background()), "close the holder")
	accept(t, client, queue, "s")
}

// sessionIDCase: the SDK takes a session only if it is granted in the words it was asked for.
func sessionIDCase(t *trial.Trial) {
	client, queue := connect(t), sessionQueue(t)
	sendMessages(t, client, queue, inSession("Order", "a"), inSession("ORDER", "b"), inSession("order", "c"))
	receiver := accept(t, client, queue, "oRDER")
	t.Must(receiver.SetSessionState(t, []byte("shared"), nil), "set the state")
	_, err := connect(t).AcceptSessionForQueue(t, queue, "ORDER", nil)
	refusal := trial.Fails[*amqp.Error](t, err, "accept a held session")
	trial.Equal(t, "com.microsoft:session-cannot-be-locked", string(refusal.Condition), "condition")
	trial.Equal(t, []string{"a", "b", "c"}, bodies(take(t, receiver, 3)), "its messages, in order")
	t.Must(receiver.Close(t), "close")
	state, err := accept(t, client, queue, "Order").GetSessionState(t, nil)
	t.Must(err, "get the state")
	trial.Equal(t, "shared", string(state), "state")
}

func sessionDeferredAfterRenewals(t *trial.Trial) {
	client, queue := connect(t), sessionQueue(t)
	sendMessages(t, client, queue, inSession("s", "early"), inSession("s", "late"))
	receiver := accept(t, client, queue, "s")
	deferred := receive(t, receiver, 2)
	for _, message := range deferred {
		t.Must(receiver.DeferMessage(t, message, nil), "defer")
	}
	fetch := func(message *azservicebus.ReceivedMessage) *azservicebus.ReceivedMessage {
		fetched, err := receiver.ReceiveDeferredMessages(t, []int64{*message.SequenceNumber}, nil)
		t.Must(err, "fetch")
		return fetched[0]
	}
	early := fetch(deferred[0])
	for range 3 {
		t.Pass(25 * time.Second)
		t.Must(receiver.RenewSessionLock(t, nil), "renew")
	}
	t.Must(receiver.CompleteMessage(t, early, nil), "complete what was fetched early")
	late := fetch(deferred[1])
	t.Pass(25 * time.Second)
	t.Must(receiver.RenewSessionLock(t, nil), "renew")
	t.Pass(25 * time.Second)
	t.Must(receiver.CompleteMessage(t, late, nil), "complete what was fetched late")
}
