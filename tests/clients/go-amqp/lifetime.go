package main

import (
	"time"

	"github.com/Azure/go-amqp"

	"peeklock.test/trial"
)

func schedule(t *trial.Trial) {
	session, queue := connect(t), t.Queue(nil)
	at := t.Clock().Add(time.Hour)
	message := text("later")
	message.Annotations = amqp.Annotations{"x-opt-scheduled-enqueue-time": at}
	send(t, session, queue, message)
	receiver := newReceiver(t, session, queue, nil)
	nothing(t, receiver)
	t.Pass(time.Hour + time.Second)
	trial.Equal(t, []string{"later"}, bodies(take(t, receiver, 1)), "what is due")
}

func cancelScheduled(t *trial.Trial) {
	session, queue := connect(t), t.Queue(nil)
	node := manage(t, session, queue)
	var entries []any
	for _, body := range []string{"a", "b"} {
		message := text(body)
		message.Annotations = amqp.Annotations{"x-opt-scheduled-enqueue-time": t.Clock().Add(time.Hour)}
		encoded, err := message.MarshalBinary()
		t.Must(err, "encode a message")
		entries = append(entries, map[string]any{"message-id": body, "message": encoded})
	}
	numbers := node.do(t, "schedule-message", map[string]any{"messages": entries})["sequence-numbers"].([]int64)
	trial.Equal(t, 2, len(numbers), "numbers")
	node.do(t, "cancel-scheduled-message", map[string]any{"sequence-numbers": numbers[:1]})
	t.Pass(time.Hour + time.Second)
	receiver := newReceiver(t, session, queue, nil)
	trial.Equal(t, []string{"b"}, bodies(take(t, receiver, 1)), "what was not cancelled")
	nothing(t, receiver)
}

func duplicateDetection(t *trial.Trial) {
	session, queue := connect(t), t.Queue(trial.Properties{
		"RequiresDuplicateDetection": true, "DuplicateDetectionHistoryTimeWindow": "PT1M",
	})
	identified := func(body string, id any) *amqp.Message {
		message := text(body)
		message.Properties = &amqp.MessageProperties{MessageID: id}
		return message
	}
	id := amqp.UUID{1, 2, 3}
	send(t, session, queue, identified("first", id), identified("second", id), identified("other", uint64(7)))
	receiver := newReceiver(t, session, queue, nil)
	arrived := take(t, receiver, 2)
	trial.Equal(t, []string{"first", "other"}, bodies(arrived), "the repeated one is dropped")
	trial.Equal(t, any(id), arrived[0].Properties.MessageID, "the id keeps its type")
	nothing(t, receiver)
	t.Pass(61 * time.Second)
	send(t, session, queue, identified("third", id))
	trial.Equal(t, []string{"third"}, bodies(take(t, receiver, 1)), "after the window")
}

func timeToLive(t *trial.Trial) {
	session, queue := connect(t), t.Queue(trial.Properties{"DeadLetteringOnMessageExpiration": true})
	short := text("short")
	short.Header = &amqp.MessageHeader{TTL: 10 * time.Second}
	send(t, session, queue, short, text("long"))
	t.Pass(11 * time.Second)
	trial.Equal(t, []string{"long"}, bodies(take(t, newReceiver(t, session, queue, nil), 1)), "what still lives")
	dead := take(t, newReceiver(t, session, queue+"/$DeadLetterQueue", nil), 1)[0]
	trial.Equal(t, "short", string(dead.GetData()), "what expired")
	trial.Equal(t, any("TTLExpiredException"), dead.ApplicationProperties["DeadLetterReason"], "reason")
}

func forwarding(t *trial.Trial) {
	session, last := connect(t), t.Queue(nil)
	graveyard := t.Queue(nil)
	first := t.Queue(trial.Properties{"ForwardTo": last})
	doomed := t.Queue(trial.Properties{"ForwardDeadLetteredMessagesTo": graveyard})
	send(t, session, first, text("forwarded"))
	trial.Equal(t, []string{"forwarded"}, bodies(take(t, newReceiver(t, session, last, nil), 1)), "from queue to queue")
	send(t, session, doomed, text("bad"))
	receiver := newReceiver(t, session, doomed, nil)
	t.Must(receiver.RejectMessage(t, receive(t, receiver), nil), "reject")
	trial.Equal(t, []string{"bad"}, bodies(take(t, newReceiver(t, session, graveyard, nil), 1)), "dead letters")
}
