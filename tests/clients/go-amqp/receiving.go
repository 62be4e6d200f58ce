package main

import (
	"time"

	"github.com/Azure/go-amqp"

	"peeklock.test/trial"
)

// receiveNoPrefetch gives credit by hand and takes it back.
func receiveNoPrefetch(t *trial.Trial) {
	session, queue := connect(t), t.Queue(nil)
	options := awaited()
	options.Credit = -1
	receiver := newReceiver(t, session, queue, options)
	send(t, session, queue, texts("a", "b", "c")...)
	t.Must(receiver.IssueCredit(2), "give credit for two")
	trial.Equal(t, []string{"a", "b"}, bodies(take(t, receiver, 2)), "two")
	nothing(t, receiver)
	t.Must(receiver.IssueCredit(5), "give credit for five")
	trial.Equal(t, []string{"c"}, bodies(take(t, receiver, 1)), "the third")
	t.Must(receiver.DrainCredit(t, nil), "take the rest of the credit back")
	send(t, session, queue, text("d"))
	nothing(t, receiver)
	t.Must(receiver.IssueCredit(1), "give credit for one")
	trial.Equal(t, []string{"d"}, bodies(take(t, receiver, 1)), "the fourth")
}

func receivePrefetch(t *trial.Trial) {
	const count = 300
	session, queue := connect(t), t.Queue(nil)
	sender := newSender(t, session, queue)
	for range count {
		_, err := sender.SendWithReceipt(t, text("x"), nil)
		t.Must(err, "send")
	}
	receiver := newReceiver(t, session, queue, &amqp.ReceiverOptions{Credit: 100})
	for want := range int64(count) {
		message := receive(t, receiver)
		trial.Equal(t, want+1, number(message), "sequence number")
		t.Must(receiver.AcceptMessage(t, message), "accept")
	}
	nothing(t, receiver)
}

func receiveAndDelete(t *trial.Trial) {
	session, queue := connect(t), t.Queue(nil)
	send(t, session, queue, texts("a", "b")...)
	receiver := newReceiver(t, session, queue, &amqp.ReceiverOptions{
		RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr(), Credit: 10,
	})
	trial.Equal(t, []string{"a", "b"}, bodies([]*amqp.Message{receive(t, receiver), receive(t, receiver)}), "what arrived")
	t.Must(receiver.Close(t), "close")
	nothing(t, newReceiver(t, session, queue, nil))
}

func peek(t *trial.Trial) {
	session, queue := connect(t), t.Queue(nil)
	send(t, session, queue, texts("a", "b", "c")...)
	node := manage(t, session, queue)
	peeked := func(from int64) []string {
		answer := node.do(t, "peek-message", map[string]any{"from-sequence-number": from, "message-count": int32(2)})
		return bodies(decoded(t, messages(answer)))
	}
	trial.Equal(t, []string{"a", "b"}, peeked(0), "from the start")
	trial.Equal(t, []string{"c"}, peeked(3), "from a number")
	trial.Equal(t, []string{"a", "b", "c"}, bodies(take(t, newReceiver(t, session, queue, nil), 3)), "peeking locked nothing")
}

func reconnectAfterRestart(t *trial.Trial) {
	connection, queue := dial(t), t.Queue(nil)
	session := begin(t, connection)
	send(t, session, queue, text("before"))
	receiver := newReceiver(t, session, t.Queue(nil), nil)
	t.Must(t.Restart(), "restart the broker")
	_, err := receiver.Receive(t, nil)
	trial.Fails[*amqp.ConnError](t, err, "use the old connection")

	session = connect(t)
	send(t, session, queue, text("after"))
	trial.Equal(t, []string{"before", "after"}, bodies(take(t, newReceiver(t, session, queue, nil), 2)), "nothing is lost")
}

func cleanClose(t *trial.Trial) {
	connection, queue := dial(t), t.Queue(nil)
	session := begin(t, connection)
	sender, receiver := newSender(t, session, queue), newReceiver(t, session, queue, nil)
	t.Must(sender.Send(t, text("x"), nil), "send")
	receive(t, receiver)
	began := time.Now()
	t.Must(receiver.Close(t), "close the receiver with a message unsettled")
	t.Must(sender.Close(t), "close the sender")
	t.Must(session.Close(t), "end the session")
	t.Must(connection.Close(), "close the connection")
	t.True(time.Since(began) < 5*time.Second, "closing takes no time")
	t.NobodyConnected()
}
