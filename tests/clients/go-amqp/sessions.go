package main

import (
	"strings"
	"time"

	"github.com/Azure/go-amqp"

	"peeklock.test/trial"
)

const sessionFilter = "com.microsoft:session-filter"

func sessionQueue(t *trial.Trial) string {
	return t.Queue(trial.Properties{"RequiresSession": true, "LockDuration": "PT30S"})
}

func inSession(session, body string) *amqp.Message {
	message := text(body)
	message.Properties = &amqp.MessageProperties{GroupID: &session}
	return message
}

// wanting asks for a session by name, or for any with nil.
func wanting(session any) *amqp.ReceiverOptions {
	options := awaited()
	options.Filters = []amqp.LinkFilter{amqp.NewLinkFilter(sessionFilter, 0, session)}
	return options
}

func sessionNamed(t *trial.Trial) {
	session, queue := connect(t), sessionQueue(t)
	send(t, session, queue, inSession("a", "a1"), inSession("b", "b1"), inSession("a", "a2"))
	receiver := newReceiver(t, session, queue, wanting("a"))
	trial.Equal(t, any("a"), receiver.LinkSourceFilterValue(sessionFilter), "the session granted")
	t.True(receiver.Properties()["com.microsoft:locked-until-utc"] != nil, "it says until when")
	trial.Equal(t, []string{"a1", "a2"}, bodies(take(t, receiver, 2)), "its own messages, in order")
	nothing(t, receiver)
	_, err := session.NewReceiver(t, queue, nil)
	condition(t, amqp.ErrCondNotAllowed, err, "receive without a session")
}

func sessionNextAvailable(t *trial.Trial) {
	session, queue := connect(t), sessionQueue(t)
	send(t, session, queue, inSession("a", "a1"), inSession("b", "b1"))
	found := map[any][]string{}
	for range 2 {
		receiver := newReceiver(t, session, queue, wanting(nil))
		found[receiver.LinkSourceFilterValue(sessionFilter)] = bodies(take(t, receiver, 1))
	}
	trial.Equal(t, map[any][]string{"a": {"a1"}, "b": {"b1"}}, found, "sessions and their messages")
}

func sessionTwoHolders(t *trial.Trial) {
	one, two, queue := connect(t), connect(t), sessionQueue(t)
	first, second := newReceiver(t, one, queue, wanting("a")), newReceiver(t, two, queue, wanting("b"))
	send(t, one, queue, inSession("a", "a1"), inSession("b", "b1"), inSession("a", "a2"), inSession("b", "b2"))
	trial.Equal(t, []string{"b1", "b2"}, bodies(take(t, second, 2)), "the second holder")
	trial.Equal(t, []string{"a1", "a2"}, bodies(take(t, first, 2)), "the first holder")
}

func sessionState(t *trial.Trial) {
	session, queue := connect(t), sessionQueue(t)
	newReceiver(t, session, queue, wanting("s"))
	node := manage(t, session, queue)
	state := func() any {
		return node.do(t, "get-session-state", map[string]any{"session-id": "s"})["session-state"]
	}
	set := func(state any) {
		node.do(t, "set-session-state", map[string]any{"session-id": "s", "session-state": state})
	}
	trial.Equal(t, nil, state(), "before it is set")
	set([]byte("step 2"))
	trial.Equal(t, any([]byte("step 2")), state(), "after it was set")
	set(nil)
	trial.Equal(t, nil, state(), "after it was cleared")
}

func sessionRenew(t *trial.Trial) {
	session, queue := connect(t), sessionQueue(t)
	send(t, session, queue, inSession("s", "kept"))
	receiver := newReceiver(t, session, queue, wanting("s"))
	message := receive(t, receiver)
	node := manage(t, session, queue)
	for range 3 {
		t.Pass(20 * time.Second)
		until := node.do(t, "renew-session-lock", map[string]any{"session-id": "s"})["expiration"].(time.Time)
		t.True(until.After(t.Clock().Add(25*time.Second)), "the lock lasts longer")
	}
	t.Must(receiver.AcceptMessage(t, message), "accept after a minute")
}

func sessionLockLost(t *trial.Trial) {
	session, queue := connect(t), sessionQueue(t)
	send(t, session, queue, inSession("s", "late"))
	receiver := newReceiver(t, session, queue, wanting("s"))
	message := receive(t, receiver)
	t.Pass(31 * time.Second)
	condition(t, "com.microsoft:session-lock-lost", receiver.AcceptMessage(t, message), "accept without the session")
	again := receive(t, newReceiver(t, session, queue, wanting("s")))
	trial.Equal(t, "late", string(again.GetData()), "the next holder gets it")
	trial.Equal(t, 1, again.Header.DeliveryCount, "delivery count")
}

func sessionNoneAvailable(t *trial.Trial) {
	session, queue := connect(t), sessionQueue(t)
	options := wanting(nil)
	options.Properties = map[string]any{"com.microsoft:timeout": uint32(200)}
	began := time.Now()
	_, err := session.NewReceiver(t, queue, options)
	condition(t, "com.microsoft:timeout", err, "ask for any session where there is none")
	t.True(time.Since(began) < 5*time.Second, "after the time that was given")
}

func errorSessionHeld(t *trial.Trial) {
	session, queue := connect(t), sessionQueue(t)
	holder := newReceiver(t, session, queue, wanting("s"))
	_, err := session.NewReceiver(t, queue, wanting("s"))
	condition(t, "com.microsoft:session-cannot-be-locked", err, "ask for a held session")
	t.Must(holder.Close(t), "close the holder")
	newReceiver(t, session, queue, wanting("s"))
}

func sessionIDCase(t *trial.Trial) {
	session, queue := connect(t), sessionQueue(t)
	send(t, session, queue, inSession("Order", "a"), inSession("ORDER", "b"), inSession("order", "c"))
	receiver := newReceiver(t, session, queue, wanting("oRDER"))
	granted, _ := receiver.LinkSourceFilterValue(sessionFilter).(string)
	t.True(strings.EqualFold("order", granted), "the session granted")
	node := manage(t, session, queue)
	node.do(t, "set-session-state", map[string]any{"session-id": "order", "session-state": []byte("shared")})
	_, err := session.NewReceiver(t, queue, wanting("Order"))
	condition(t, "com.microsoft:session-cannot-be-locked", err, "ask for a held session")
	trial.Equal(t, []string{"a", "b", "c"}, bodies(take(t, receiver, 3)), "its messages, in order")
	state := node.do(t, "get-session-state", map[string]any{"session-id": "ORDER"})["session-state"]
	trial.Equal(t, any([]byte("shared")), state, "state")
}

func sessionDeferredAfterRenewals(t *trial.Trial) {
	session, queue := connect(t), sessionQueue(t)
	send(t, session, queue, inSession("s", "early"), inSession("s", "late"))
	receiver := newReceiver(t, session, queue, wanting("s"))
	var numbers []int64
	for range 2 {
		message := receive(t, receiver)
		numbers = append(numbers, number(message))
		t.Must(receiver.ModifyMessage(t, message, &amqp.ModifyMessageOptions{UndeliverableHere: true}), "defer")
	}
	node := manage(t, session, queue)
	fetch := func(number int64) amqp.UUID {
		answer := node.do(t, "receive-by-sequence-number", map[string]any{
			"sequence-numbers": []int64{number}, "receiver-settle-mode": uint32(1), "session-id": "s",
		})
		return answer["messages"].([]any)[0].(map[string]any)["lock-token"].(amqp.UUID)
	}
	complete := func(token amqp.UUID) {
		node.do(t, "update-disposition", map[string]any{
			"disposition-status": "completed", "lock-tokens": []amqp.UUID{token}, "session-id": "s",
		})
	}
	renew := func() { node.do(t, "renew-session-lock", map[string]any{"session-id": "s"}) }
	early := fetch(numbers[0])
	for range 3 {
		t.Pass(25 * time.Second)
		renew()
	}
	complete(early)
	late := fetch(numbers[1])
	t.Pass(25 * time.Second)
	renew()
	t.Pass(25 * time.Second)
	complete(late)
}
