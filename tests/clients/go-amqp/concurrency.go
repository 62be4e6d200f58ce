package main

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/Azure/go-amqp"

	"peeklock.test/trial"
)

// concurrentManagement sends all requests before it reads the first answer.
func concurrentManagement(t *trial.Trial) {
	const count = 20
	session, queue := connect(t), t.Queue(trial.Properties{"LockDuration": "PT30S"})
	node, due := manage(t, session, queue), t.Clock().Add(time.Hour)
	var want []string
	var requests []map[string]any
	for number := range count {
		body := fmt.Sprintf("%02d", number)
		message := text(body)
		message.Annotations = amqp.Annotations{"x-opt-scheduled-enqueue-time": due}
		encoded, err := message.MarshalBinary()
		t.Must(err, "encode a message")
		want = append(want, body)
		requests = append(requests, map[string]any{
			"messages": []any{map[string]any{"message-id": body, "message": encoded}},
		})
	}
	node.doTogether(t, "schedule-message", requests)
	t.Pass(time.Hour + time.Second)
	options := awaited()
	options.Credit = count // go-amqp asks for more only when something is settled
	receiver := newReceiver(t, session, queue, options)
	held := make([]*amqp.Message, count)
	for index := range held {
		held[index] = receive(t, receiver)
		requests[index] = map[string]any{"lock-tokens": lockTokens(held[index])}
	}
	got := bodies(held)
	slices.Sort(got)
	trial.Equal(t, want, got, "what was scheduled")
	t.Pass(20 * time.Second)
	node.doTogether(t, "renew-lock", requests)
	t.Pass(20 * time.Second)
	for _, message := range held {
		t.Must(receiver.AcceptMessage(t, message), "accept")
	}
	nothing(t, receiver)
}

// doTogether has many requests of one kind under way at once, all of which must succeed.
func (n *node) doTogether(t *trial.Trial, operation string, requests []map[string]any) {
	for _, body := range requests {
		n.count++
		t.Must(n.sender.Send(t, &amqp.Message{
			Properties:            &amqp.MessageProperties{MessageID: fmt.Sprint(n.count), ReplyTo: &n.replyTo},
			ApplicationProperties: map[string]any{"operation": "com.microsoft:" + operation},
			Value:                 body,
		}, nil), "send a request")
	}
	for range requests {
		reply := receive(t, n.receiver)
		t.Must(n.receiver.AcceptMessage(t, reply), "accept the reply")
		trial.Equal(t, any(int32(http.StatusOK)), reply.ApplicationProperties["statusCode"], operation)
	}
}

// backupSettlement completes messages after their link was closed, and after their connection was.
func backupSettlement(t *trial.Trial) {
	session, queue := connect(t), t.Queue(nil)
	send(t, session, queue, texts("of a link", "of a connection")...)
	receiver := newReceiver(t, session, queue, nil)
	ofLink := receive(t, receiver)
	t.Must(receiver.Close(t), "close the link")
	connection := dial(t)
	ofConnection := receive(t, newReceiver(t, begin(t, connection), queue, nil))
	t.Must(connection.Close(), "close the connection")
	nothing(t, newReceiver(t, session, queue, nil))
	node := manage(t, session, queue)
	node.do(t, "update-disposition", map[string]any{
		"disposition-status": "completed", "lock-tokens": lockTokens(ofLink, ofConnection),
	})
	status, _ := node.ask(t, "peek-message", map[string]any{
		"from-sequence-number": int64(0), "message-count": int32(1),
	})
	trial.Equal(t, http.StatusNoContent, int(status), "what is left")
}

func purgeEmpty(t *trial.Trial) {
	session, queue := connect(t), t.Queue(nil)
	node := manage(t, session, queue)
	purge := map[string]any{"message-count": int32(10), "enqueued-time-utc": t.Clock().Add(time.Hour)}
	status, _ := node.ask(t, "batch-delete-messages", purge)
	trial.Equal(t, http.StatusNoContent, int(status), "an empty queue")
	send(t, session, queue, texts("a", "b")...)
	trial.Equal(t, any(int32(2)), node.do(t, "batch-delete-messages", purge)["message-count"], "how many were deleted")
	status, _ = node.ask(t, "batch-delete-messages", purge)
	trial.Equal(t, http.StatusNoContent, int(status), "a queue that was purged")
}
