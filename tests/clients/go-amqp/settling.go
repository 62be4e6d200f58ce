package main

import (
	"net/http"
	"time"

	"github.com/Azure/go-amqp"

	"peeklock.test/trial"
)

func complete(t *trial.Trial) {
	session, queue := connect(t), t.Queue(nil)
	send(t, session, queue, text("a"))
	receiver := newReceiver(t, session, queue, nil)
	take(t, receiver, 1)
	t.Must(receiver.Close(t), "close, or it would get the next one too")
	send(t, session, queue, text("b"))
	forgetful := newReceiver(t, session, queue, &amqp.ReceiverOptions{})
	take(t, forgetful, 1)
	nothing(t, forgetful)
	status, _ := manage(t, session, queue).ask(t, "peek-message", map[string]any{
		"from-sequence-number": int64(0), "message-count": int32(1),
	})
	trial.Equal(t, http.StatusNoContent, int(status), "what is left")
}

func abandonWithProperties(t *trial.Trial) {
	session, queue := connect(t), t.Queue(nil)
	send(t, session, queue, text("again"))
	receiver := newReceiver(t, session, queue, nil)
	t.Must(receiver.ModifyMessage(t, receive(t, receiver), &amqp.ModifyMessageOptions{
		DeliveryFailed: true, Annotations: amqp.Annotations{"why": "busy", "attempt": int64(1)},
	}), "modify")
	again := receive(t, receiver)
	trial.Equal(t, 1, again.Header.DeliveryCount, "delivery count")
	trial.Equal(t, map[string]any{"why": "busy", "attempt": int64(1)}, again.ApplicationProperties, "properties")
	t.Must(receiver.ReleaseMessage(t, again), "release")
	released := receive(t, receiver)
	trial.Equal(t, 1, released.Header.DeliveryCount, "releasing is no failure")
	t.Must(receiver.AcceptMessage(t, released), "accept")
}

func deferAndFetch(t *trial.Trial) {
	session, queue := connect(t), t.Queue(nil)
	send(t, session, queue, texts("later", "now")...)
	receiver := newReceiver(t, session, queue, nil)
	later := receive(t, receiver)
	t.Must(receiver.ModifyMessage(t, later, &amqp.ModifyMessageOptions{UndeliverableHere: true}), "defer")
	trial.Equal(t, []string{"now"}, bodies(take(t, receiver, 1)), "receivers skip it")
	nothing(t, receiver)

	node := manage(t, session, queue)
	fetch := map[string]any{"sequence-numbers": []int64{number(later)}, "receiver-settle-mode": uint32(1)}
	answer := node.do(t, "receive-by-sequence-number", fetch)
	trial.Equal(t, []string{"later"}, bodies(decoded(t, messages(answer))), "what was deferred")
	lockToken := answer["messages"].([]any)[0].(map[string]any)["lock-token"].(amqp.UUID)
	node.do(t, "update-disposition", map[string]any{
		"disposition-status": "completed", "lock-tokens": []amqp.UUID{lockToken},
	})
	status, _ := node.ask(t, "receive-by-sequence-number", fetch)
	trial.Equal(t, http.StatusNotFound, int(status), "fetching what is gone")
}

func deadLetterAndReadBack(t *trial.Trial) {
	session, queue := connect(t), t.Queue(nil)
	send(t, session, queue, texts("bad", "worse")...)
	receiver := newReceiver(t, session, queue, nil)
	t.Must(receiver.RejectMessage(t, receive(t, receiver), &amqp.Error{
		Condition: "com.microsoft:dead-letter", Description: "line 3",
		Info: map[string]any{"DeadLetterReason": "unreadable"},
	}), "reject")
	t.Must(receiver.RejectMessage(t, receive(t, receiver), nil), "reject without a word")
	dead := take(t, newReceiver(t, session, queue+"/$DeadLetterQueue", nil), 2)
	trial.Equal(t, []string{"bad", "worse"}, bodies(dead), "what is dead")
	trial.Equal(t, any("unreadable"), dead[0].ApplicationProperties["DeadLetterReason"], "reason")
	trial.Equal(t, any("line 3"), dead[0].ApplicationProperties["DeadLetterErrorDescription"], "description")
}

func lockTokens(messages ...*amqp.Message) []amqp.UUID {
	tokens := make([]amqp.UUID, len(messages))
	for index, message := range messages {
		tag := message.DeliveryTag // its first three parts are little-endian
		tokens[index] = amqp.UUID{tag[3], tag[2], tag[1], tag[0], tag[5], tag[4], tag[7], tag[6]}
		copy(tokens[index][8:], tag[8:])
	}
	return tokens
}

func renewLock(t *trial.Trial) {
	session, queue := connect(t), t.Queue(trial.Properties{"LockDuration": "PT30S"})
	send(t, session, queue, text("kept"))
	receiver := newReceiver(t, session, queue, nil)
	message := receive(t, receiver)
	node := manage(t, session, queue)
	for range 3 {
		t.Pass(20 * time.Second)
		answer := node.do(t, "renew-lock", map[string]any{"lock-tokens": lockTokens(message)})
		until := answer["expirations"].([]time.Time)[0]
		t.True(until.After(t.Clock().Add(25*time.Second)), "the lock lasts longer")
	}
	t.Must(receiver.AcceptMessage(t, message), "accept after a minute")
	nothing(t, receiver)
}

func lockLost(t *trial.Trial) {
	session, queue := connect(t), t.Queue(trial.Properties{"LockDuration": "PT30S"})
	send(t, session, queue, text("late"))
	receiver := newReceiver(t, session, queue, nil)
	message := receive(t, receiver)
	t.Pass(31 * time.Second)
	condition(t, "com.microsoft:message-lock-lost", receiver.AcceptMessage(t, message), "accept without a lock")
	again := receive(t, receiver)
	trial.Equal(t, 1, again.Header.DeliveryCount, "delivery count")
	t.Must(receiver.AcceptMessage(t, again), "accept under the new lock")
}
