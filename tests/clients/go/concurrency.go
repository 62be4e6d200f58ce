package main

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"peeklock.test/trial"
)

// together runs so many calls at once, all of which must succeed.
func together(t *trial.Trial, count int, doing string, call func(number int) error) {
	var group sync.WaitGroup
	failures := make([]error, count)
	for number := range count {
		group.Add(1)
		go func() {
			defer group.Done()
			failures[number] = call(number)
		}()
	}
	group.Wait()
	for _, err := range failures {
		t.Must(err, doing)
	}
}

func concurrentManagement(t *trial.Trial) {
	const count = 20
	client, queue := connect(t), t.Queue(trial.Properties{"LockDuration": "PT30S"})
	sender, err := client.NewSender(queue, nil)
	t.Must(err, "make a sender")
	due := t.Clock().Add(time.Hour)
	var want []string
	for number := range count {
		want = append(want, fmt.Sprintf("%02d", number))
	}
	together(t, count, "schedule", func(number int) error {
		_, err := sender.ScheduleMessages(t, []*azservicebus.Message{text(want[number])}, due, nil)
		return err
	})
	t.Pass(time.Hour + time.Second)
	receiver := newReceiver(t, client, queue, nil)
	messages := receive(t, receiver, count)
	got := bodies(messages)
	slices.Sort(got)
	trial.Equal(t, want, got, "what was scheduled")
	t.Pass(20 * time.Second)
	together(t, count, "renew", func(number int) error {
		return receiver.RenewMessageLock(t, messages[number], nil)
	})
	t.Pass(20 * time.Second)
	completeAll(t, receiver, messages)
	nothing(t, receiver)
}

// backupSettlement completes a message after its receiver was closed, and after its connection was.
func backupSettlement(t *trial.Trial) {
	client, queue := connect(t), t.Queue(nil)
	send(t, client, queue, "of a link", "of a connection")
	receiver := newReceiver(t, client, queue, nil)
	ofLink := receive(t, receiver, 1)[0]
	t.Must(receiver.Close(t), "close the receiver")
	other := connect(t)
	ofConnection := receive(t, newReceiver(t, other, queue, nil), 1)[0]
	t.Must(other.Close(t), "close the connection")

	settling := newReceiver(t, client, queue, nil)
	nothing(t, settling)
	t.Must(settling.CompleteMessage(t, ofLink, nil), "complete after the link was closed")
	t.Must(settling.CompleteMessage(t, ofConnection, nil), "complete after the connection was closed")
	left, err := settling.PeekMessages(t, 10, nil)
	t.Must(err, "peek")
	trial.Equal(t, []string{}, bodies(left), "what is left")
}
