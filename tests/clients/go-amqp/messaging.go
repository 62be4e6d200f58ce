package main

import (
	"context"
	"errors"
	"time"

	"github.com/Azure/go-amqp"

	"peeklock.test/trial"
)

// quiet is how long a receiver must stay without messages to count as empty.
const quiet = 300 * time.Millisecond

// awaited has the broker confirm what is settled; otherwise go-amqp settles and forgets.
func awaited() *amqp.ReceiverOptions {
	return &amqp.ReceiverOptions{SettlementMode: amqp.ReceiverSettleModeSecond.Ptr()}
}

func newReceiver(t *trial.Trial, session *amqp.Session, address string, options *amqp.ReceiverOptions) *amqp.Receiver {
	if options == nil {
		options = awaited()
	}
	receiver, err := session.NewReceiver(t, address, options)
	t.Must(err, "attach a receiver to "+address)
	return receiver
}

func newSender(t *trial.Trial, session *amqp.Session, address string) *amqp.Sender {
	sender, err := session.NewSender(t, address, nil)
	t.Must(err, "attach a sender to "+address)
	return sender
}

func text(body string) *amqp.Message {
	return amqp.NewMessage([]byte(body))
}

func texts(bodies ...string) []*amqp.Message {
	messages := make([]*amqp.Message, len(bodies))
	for index, body := range bodies {
		messages[index] = text(body)
	}
	return messages
}

func send(t *trial.Trial, session *amqp.Session, address string, messages ...*amqp.Message) {
	sender := newSender(t, session, address)
	for _, message := range messages {
		t.Must(sender.Send(t, message, nil), "send")
	}
	t.Must(sender.Close(t), "close the sender")
}

func receive(t *trial.Trial, receiver *amqp.Receiver) *amqp.Message {
	message, err := receiver.Receive(t, nil)
	t.Must(err, "receive")
	return message
}

// take receives and completes so many messages.
func take(t *trial.Trial, receiver *amqp.Receiver, count int) []*amqp.Message {
	messages := make([]*amqp.Message, count)
	for index := range messages {
		messages[index] = receive(t, receiver)
		t.Must(receiver.AcceptMessage(t, messages[index]), "accept")
	}
	return messages
}

// nothing makes sure that no message comes.
func nothing(t *trial.Trial, receiver *amqp.Receiver) {
	ctx, cancel := context.WithTimeout(t, quiet)
	defer cancel()
	message, err := receiver.Receive(ctx, nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fail("expected no message, got %v and error %v", message, err)
	}
}

func bodies(messages []*amqp.Message) []string {
	texts := make([]string, len(messages))
	for index, message := range messages {
		texts[index] = string(message.GetData())
	}
	return texts
}

func number(message *amqp.Message) int64 {
	number, _ := message.Annotations["x-opt-sequence-number"].(int64)
	return number
}

// condition makes sure that the broker gave a certain reason.
func condition(t *trial.Trial, want amqp.ErrCond, err error, doing string) {
	trial.Equal(t, want, trial.Fails[*amqp.Error](t, err, doing).Condition, doing)
}
