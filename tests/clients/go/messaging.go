package main

import (
	"context"
	"errors"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"peeklock.test/trial"
)

// quiet is how long a receiver must stay without messages to count as empty.
const quiet = 300 * time.Millisecond

// consumer is what a receiver and a session receiver have in common.
type consumer interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	CompleteMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.CompleteMessageOptions) error
	Close(context.Context) error
}

func connect(t *trial.Trial) *azservicebus.Client {
	return connectWith(t, t.ConnectionString, nil)
}

func connectWith(t *trial.Trial, connectionString string, options *azservicebus.ClientOptions) *azservicebus.Client {
	client, err := azservicebus.NewClientFromConnectionString(connectionString, options)
	t.Must(err, "make a client")
	t.AtEnd(func() { _ = client.Close(context.Background()) })
	return client
}

func newReceiver(t *trial.Trial, client *azservicebus.Client, queue string, options *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	receiver, err := client.NewReceiverForQueue(queue, options)
	t.Must(err, "make a receiver")
	return receiver
}

func deadLetters(t *trial.Trial, client *azservicebus.Client, queue string) *azservicebus.Receiver {
	return newReceiver(t, client, queue, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
}

func text(body string) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(body)}
}

func send(t *trial.Trial, client *azservicebus.Client, entity string, bodies ...string) {
	for _, body := range bodies {
		sendMessages(t, client, entity, text(body))
	}
}

func sendMessages(t *trial.Trial, client *azservicebus.Client, entity string, messages ...*azservicebus.Message) {
	sender, err := client.NewSender(entity, nil)
	t.Must(err, "make a sender")
	for _, message := range messages {
		t.Must(sender.SendMessage(t, message, nil), "send")
	}
	t.Must(sender.Close(t), "close the sender")
}

// receive waits for so many messages.
func receive(t *trial.Trial, receiver consumer, count int) []*azservicebus.ReceivedMessage {
	var all []*azservicebus.ReceivedMessage
	for len(all) < count {
		some, err := receiver.ReceiveMessages(t, count-len(all), nil)
		t.Must(err, "receive")
		all = append(all, some...)
	}
	return all
}

func completeAll(t *trial.Trial, receiver consumer, messages []*azservicebus.ReceivedMessage) {
	for _, message := range messages {
		t.Must(receiver.CompleteMessage(t, message, nil), "complete")
	}
}

// take receives and completes so many messages.
func take(t *trial.Trial, receiver consumer, count int) []*azservicebus.ReceivedMessage {
	messages := receive(t, receiver, count)
	completeAll(t, receiver, messages)
	return messages
}

// nothing makes sure that no message comes.
func nothing(t *trial.Trial, receiver consumer) {
	ctx, cancel := context.WithTimeout(t, quiet)
	defer cancel()
	messages, err := receiver.ReceiveMessages(ctx, 1, nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fail("expected no message, got %v and error %v", bodies(messages), err)
	}
}

func bodies(messages []*azservicebus.ReceivedMessage) []string {
	texts := make([]string, len(messages))
	for index, message := range messages {
		texts[index] = string(message.Body)
	}
	return texts
}

// refused makes sure that an error has one of the SDK's own codes.
func refused(t *trial.Trial, code azservicebus.Code, err error, doing string) {
	trial.Equal(t, code, trial.Fails[*azservicebus.Error](t, err, doing).Code, doing)
}
