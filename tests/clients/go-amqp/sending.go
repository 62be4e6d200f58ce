package main

import (
	"bytes"
	"fmt"

	"github.com/Azure/go-amqp"

	"peeklock.test/trial"
)

// batchFormat marks a message whose data sections are messages.
const batchFormat = 0x80013700

func sendOne(t *trial.Trial) {
	session, queue := connect(t), t.Queue(nil)
	sender := newSender(t, session, queue)
	t.Must(sender.Send(t, text("unsettled"), nil), "send")
	t.Must(sender.Send(t, text("settled"), &amqp.SendOptions{Settled: true}), "send without asking for an answer")
	messages := take(t, newReceiver(t, session, queue, nil), 2)
	trial.Equal(t, []string{"unsettled", "settled"}, bodies(messages), "what arrived")
	trial.Equal(t, 0, messages[0].Header.DeliveryCount, "delivery count")
	trial.Equal(t, 1, number(messages[0]), "sequence number")
}

// sendMany puts all transfers on the wire before it looks at the first outcome.
func sendMany(t *trial.Trial) {
	const count = 2_000
	session, queue := connect(t), t.Queue(nil)
	sender := newSender(t, session, queue)
	receipts := make([]amqp.SendReceipt, count)
	sent := make([]string, count)
	for index := range count {
		var err error
		sent[index] = fmt.Sprint(index)
		receipts[index], err = sender.SendWithReceipt(t, text(sent[index]), nil)
		t.Must(err, "send")
	}
	for index := range receipts {
		state, err := receipts[index].Wait(t)
		t.Must(err, "wait for an outcome")
		_, accepted := state.(*amqp.StateAccepted)
		t.True(accepted, "the outcome is accepted")
	}
	receiver := newReceiver(t, session, queue, &amqp.ReceiverOptions{Credit: 100})
	trial.Equal(t, sent, bodies(take(t, receiver, count)), "all arrive in order")
}

func sendBatch(t *trial.Trial) {
	session, queue := connect(t), t.Queue(nil)
	batch := &amqp.Message{Format: batchFormat}
	for _, message := range texts("a", "b", "c") {
		encoded, err := message.MarshalBinary()
		t.Must(err, "encode a message")
		batch.Data = append(batch.Data, encoded)
	}
	send(t, session, queue, batch)
	trial.Equal(t, []string{"a", "b", "c"}, bodies(take(t, newReceiver(t, session, queue, nil), 3)), "messages of a batch")
}

func sendMegabyte(t *trial.Trial) {
	session, queue := connect(t), t.Queue(nil)
	body := make([]byte, 1<<20)
	for index := range body {
		body[index] = byte(index * 7)
	}
	send(t, session, queue, amqp.NewMessage(body))
	message := take(t, newReceiver(t, session, queue, nil), 1)[0]
	t.True(bytes.Equal(body, message.GetData()), "the body is the same")
}
