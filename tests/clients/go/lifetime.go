package main

import (
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"peeklock.test/trial"
)

func schedule(t *trial.Trial) {
	client, queue := connect(t), t.Queue(nil)
	sender, err := client.NewSender(queue, nil)
	t.Must(err, "make a sender")
	at := t.Clock().Add(time.Hour).Truncate(time.Millisecond)
	numbers, err := sender.ScheduleMessages(t, []*azservicebus.Message{text("a"), text("b")}, at, nil)
	t.Must(err, "schedule")
	trial.Equal(t, 2, len(numbers), "numbers")
	t.Must(sender.SendMessage(t, &azservicebus.Message{Body: []byte("c"), ScheduledEnqueueTime: to.Ptr(at)}, nil),
		"send with a time")
	receiver := newReceiver(t, client, queue, nil)
	nothing(t, receiver)
	peeked, err := receiver.PeekMessages(t, 10, nil)
	t.Must(err, "peek")
	trial.Equal(t, []string{"a", "b", "c"}, bodies(peeked), "what waits")
	trial.Equal(t, azservicebus.MessageStateScheduled, peeked[0].State, "state")
	trial.Equal(t, numbers[0], *peeked[0].SequenceNumber, "sequence number")
	trial.Equal(t, at.UnixMilli(), peeked[0].ScheduledEnqueueTime.UnixMilli(), "scheduled time")
	t.Pass(time.Hour + time.Second)
	due := take(t, receiver, 3)
	trial.Equal(t, []string{"a", "b", "c"}, bodies(due), "what is due")
	t.True(!due[0].EnqueuedTime.Before(at), "enqueued at its time")
}

func cancelScheduled(t *trial.Trial) {
	client, queue := connect(t), t.Queue(nil)
	sender, err := client.NewSender(queue, nil)
	t.Must(err, "make a sender")
	at := t.Clock().Add(time.Hour)
	numbers, err := sender.ScheduleMessages(t, []*azservicebus.Message{text("a"), text("b"), text("c")}, at, nil)
	t.Must(err, "schedule")
	t.Must(sender.CancelScheduledMessages(t, []int64{numbers[0], numbers[2]}, nil), "cancel")
	t.Pass(time.Hour + time.Second)
	receiver := newReceiver(t, client, queue, nil)
	trial.Equal(t, []string{"b"}, bodies(take(t, receiver, 1)), "what was not cancelled")
	nothing(t, receiver)
}

func duplicateDetection(t *trial.Trial) {
	client, queue := connect(t), t.Queue(trial.Properties{
		"RequiresDuplicateDetection": true, "DuplicateDetectionHistoryTimeWindow": "PT1M",
	})
	identified := func(body string) *azservicebus.Message {
		return &azservicebus.Message{Body: []byte(body), MessageID: to.Ptr("same")}
	}
	sendMessages(t, client, queue, identified("first"), identified("second"))
	receiver := newReceiver(t, client, queue, nil)
	trial.Equal(t, []string{"first"}, bodies(take(t, receiver, 1)), "one of two")
	nothing(t, receiver)
	t.Pass(61 * time.Second)
	sendMessages(t, client, queue, identified("third"))
	trial.Equal(t, []string{"third"}, bodies(take(t, receiver, 1)), "after the window")
}

func timeToLive(t *trial.Trial) {
	client, queue := connect(t), t.Queue(trial.Properties{"DeadLetteringOnMessageExpiration": true})
	sendMessages(t, client, queue,
		&azservicebus.Message{Body: []byte("short"), TimeToLive: to.Ptr(10 * time.Second)}, text("long"))
	peeker := newReceiver(t, client, queue, nil)
	peeked, err := peeker.PeekMessages(t, 1, nil)
	t.Must(err, "peek")
	trial.Equal(t, 10*time.Second, *peeked[0].TimeToLive, "time to live")
	trial.Equal(t, peeked[0].EnqueuedTime.Add(10*time.Second), *peeked[0].ExpiresAt, "expires at")
	t.Pass(11 * time.Second)
	receiver := newReceiver(t, client, queue, nil)
	trial.Equal(t, []string{"long"}, bodies(take(t, receiver, 1)), "what still lives")
	dead := take(t, deadLetters(t, client, queue), 1)[0]
	trial.Equal(t, "short", string(dead.Body), "what expired")
	trial.Equal(t, "TTLExpiredException", *dead.DeadLetterReason, "reason")
}

func forwarding(t *trial.Trial) {
	client, last := connect(t), t.Queue(nil)
	graveyard := t.Queue(nil)
	first := t.Queue(trial.Properties{"ForwardTo": last})
	doomed := t.Queue(trial.Properties{"ForwardDeadLetteredMessagesTo": graveyard})
	topic := t.Topic(nil)
	t.Subscription(topic, "sub", trial.Properties{"ForwardTo": last})
	send(t, client, first, "from queue")
	send(t, client, topic, "from topic")
	messages := take(t, newReceiver(t, client, last, nil), 2)
	trial.Equal(t, []string{"from queue", "from topic"}, bodies(messages), "what was forwarded")
	t.True(messages[0].EnqueuedSequenceNumber != nil, "the first number is remembered")

	send(t, client, doomed, "bad")
	receiver := newReceiver(t, client, doomed, nil)
	t.Must(receiver.DeadLetterMessage(t, receive(t, receiver, 1)[0], &azservicebus.DeadLetterOptions{
		Reason: to.Ptr("why"),
	}), "dead-letter")
	dead := take(t, newReceiver(t, client, graveyard, nil), 1)[0]
	trial.Equal(t, "why", *dead.DeadLetterReason, "reason")
	trial.Equal(t, doomed, *dead.DeadLetterSource, "source")
}
