package main

import (
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"peeklock.test/trial"
)

// Faults that the broker is told to make, as users of the SDK see them: first without, then with retries.
var faults = []trial.Scenario{
	{ID: "fault-server-busy", Run: faultServerBusy},
	{ID: "fault-detach", Run: faultDetach},
	{ID: "fault-drop-before", Run: func(t *trial.Trial) { faultDrop(t, "before", 1) }},
	{ID: "fault-drop-after", Run: func(t *trial.Trial) { faultDrop(t, "after", 3) }},
}

// makeFault makes the first so many sends to a queue fail.
func makeFault(t *trial.Trial, queue string, first int, action trial.Properties) string {
	name, err := t.Fault(map[string]any{
		"operation": "send", "entity": queue, "occurrence": map[string]int{"first": first}, "action": action,
	})
	t.Must(err, "make a fault")
	return name
}

func sendWithRetries(t *trial.Trial, queue string, retries azservicebus.RetryOptions) error {
	client := connectWith(t, t.ConnectionString, &azservicebus.ClientOptions{RetryOptions: retries})
	sender, err := client.NewSender(queue, nil)
	t.Must(err, "make a sender")
	return sender.SendMessage(t, text("a"), nil)
}

// both sends without retries and with them. Returns the error of the first, and makes sure how many messages came.
func both(t *trial.Trial, action trial.Properties, first, stored int) error {
	queue := t.Queue(nil)
	makeFault(t, queue, 1, action)
	refusal := sendWithRetries(t, queue, azservicebus.RetryOptions{MaxRetries: -1})
	name := makeFault(t, queue, first, action)
	quick := azservicebus.RetryOptions{MaxRetries: 3, RetryDelay: 20 * time.Millisecond}
	t.Must(sendWithRetries(t, queue, quick), "send with retries")
	hits, err := t.Hits(name)
	t.Must(err, "read the fault")
	trial.Equal(t, first, hits, "hits")
	receiver := newReceiver(t, connect(t), queue, nil)
	take(t, receiver, stored)
	nothing(t, receiver)
	return refusal
}

func faultServerBusy(t *trial.Trial) {
	err := both(t, trial.Properties{"kind": "server_busy"}, 2, 1)
	refusal := trial.Fails[*amqp.Error](t, err, "send to a busy queue")
	trial.Equal(t, "com.microsoft:server-busy", string(refusal.Condition), "condition")
	t.Note(string(refusal.Condition))
}

// faultDetach: the SDK attaches again at once, also without retries, so both messages come.
func faultDetach(t *trial.Trial) {
	t.Must(both(t, trial.Properties{"kind": "detach"}, 1, 2), "send on a link that is detached")
	t.Note("no error: the SDK attaches again")
}

func faultDrop(t *trial.Trial, when string, stored int) {
	err := both(t, trial.Properties{"kind": "drop_connection", "when": when}, 1, stored)
	refused(t, azservicebus.CodeConnectionLost, err, "send on a connection that is dropped")
	t.Note(string(azservicebus.CodeConnectionLost))
}
