package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"peeklock.test/trial"
)

func sendOne(t *trial.Trial) {
	client, queue := connect(t), t.Queue(nil)
	before := t.Clock()
	sendMessages(t, client, queue, &azservicebus.Message{Body: []byte("one"), MessageID: to.Ptr("id-1")})
	message := take(t, newReceiver(t, client, queue, nil), 1)[0]
	trial.Equal(t, "one", string(message.Body), "body")
	trial.Equal(t, "id-1", message.MessageID, "message id")
	trial.Equal(t, 1, message.DeliveryCount, "delivery count")
	trial.Equal(t, 1, *message.SequenceNumber, "sequence number")
	trial.Equal(t, azservicebus.MessageStateActive, message.State, "state")
	t.True(!message.EnqueuedTime.Before(before.Truncate(time.Millisecond)), "enqueued after it was sent")
	t.True(message.LockedUntil.After(*message.EnqueuedTime), "locked for a while")
	t.True(message.LockToken != [16]byte{}, "there is a lock token")
}

// sendMany has many sends under way at once.
func sendMany(t *trial.Trial) {
	const count = 500
	client, queue := connect(t), t.Queue(nil)
	sender, err := client.NewSender(queue, nil)
	t.Must(err, "make a sender")
	var group sync.WaitGroup
	failures := make(chan error, count)
	for number := range count {
		group.Add(1)
		go func() {
			defer group.Done()
			failures <- sender.SendMessage(t, text(fmt.Sprintf("%03d", number)), nil)
		}()
	}
	group.Wait()
	close(failures)
	for err := range failures {
		t.Must(err, "send")
	}
	arrived := bodies(take(t, newReceiver(t, client, queue, nil), count))
	slices.Sort(arrived)
	t.True(len(slices.Compact(arrived)) == count, "each message arrived once")
}

func sendBatch(t *trial.Trial) {
	client, queue := connect(t), t.Queue(trial.Properties{"MaxMessageSizeInKilobytes": 1024})
	sender, err := client.NewSender(queue, nil)
	t.Must(err, "make a sender")
	batch, err := sender.NewMessageBatch(t, nil)
	t.Must(err, "make a batch")
	var added []string
	for {
		body := fmt.Sprintf("%03d", len(added))
		padded := append([]byte(body), bytes.Repeat([]byte{'.'}, 60_000)...)
		err := batch.AddMessage(&azservicebus.Message{
			Body: padded, Subject: to.Ptr(body), ApplicationProperties: map[string]any{"number": int64(len(added))},
		}, nil)
		if errors.Is(err, azservicebus.ErrMessageTooLarge) {
			break
		}
		t.Must(err, "add to the batch")
		added = append(added, body)
	}
	t.True(len(added) > 10, "more than ten messages fit into a batch")
	t.Must(sender.SendMessageBatch(t, batch, nil), "send the batch")

	single, err := sender.NewMessageBatch(t, &azservicebus.MessageBatchOptions{MaxBytes: 1000})
	t.Must(err, "make a small batch")
	t.Must(single.AddMessage(&azservicebus.Message{Body: []byte("alone"), Subject: to.Ptr("alone")}, nil), "add one")
	t.Must(sender.SendMessageBatch(t, single, nil), "send a batch of one")
	added = append(added, "alone")

	var subjects []string
	for _, message := range take(t, newReceiver(t, client, queue, nil), len(added)) {
		subjects = append(subjects, *message.Subject)
	}
	trial.Equal(t, added, subjects, "messages of the batches, in order")
}

func sendMegabyte(t *trial.Trial) {
	client, queue := connect(t), t.Queue(nil)
	body := make([]byte, 1<<20)
	for index := range body {
		body[index] = byte(index * 7)
	}
	sendMessages(t, client, queue, &azservicebus.Message{Body: body})
	message := take(t, newReceiver(t, client, queue, nil), 1)[0]
	t.True(bytes.Equal(body, message.Body), "the body is the same")
}
