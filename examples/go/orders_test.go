package orders

import (
	"context"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

var topology = object{"queues": object{"orders": object{"max_delivery_count": 3}}}

const week = 7 * 24 * time.Hour

func connect(t *testing.T, n *namespace) (context.Context, *azservicebus.Sender, *azservicebus.Receiver) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	client, err := azservicebus.NewClientFromConnectionString(n.ConnectionString, nil)
	must(t, err)
	t.Cleanup(func() {
		client.Close(ctx)
		cancel()
	})
	sender, err := client.NewSender("orders", nil)
	must(t, err)
	receiver, err := client.NewReceiverForQueue("orders", nil)
	must(t, err)
	return ctx, sender, receiver
}

func TestAnOrderThatFailsThreeTimesBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	n := newNamespace(t, topology)
	ctx, sender, receiver := connect(t, n)
	id := "order-1"
	must(t, sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("no such thing"), MessageID: &id}, nil))
	for range 3 {
		orders, err := receiver.ReceiveMessages(ctx, 1, nil)
		must(t, err)
		must(t, receiver.AbandonMessage(ctx, orders[0], nil))
	}
	n.wait(object{"entity": "orders", "state": "dead_lettered", "at_least": 1})
	dead := n.deadLetters("orders")[0]
	if dead.MessageID != id || dead.DeadLetter.Reason != "MaxDeliveryCountExceeded" {
		t.Fatalf("%+v", dead)
	}
}

func TestAReminderArrivesAWeekLater(t *testing.T) {
	t.Parallel()
	n := newNamespace(t, topology)
	ctx, sender, receiver := connect(t, n)
	reminder := []*azservicebus.Message{{Body: []byte("pay")}}
	_, err := sender.ScheduleMessages(ctx, reminder, time.Now().Add(week), nil)
	must(t, err)
	n.wait(object{"entity": "orders", "state": "scheduled", "equals": 1})
	n.advanceClock(week.Seconds() + 1)
	messages, err := receiver.ReceiveMessages(ctx, 1, nil)
	must(t, err)
	if string(messages[0].Body) != "pay" {
		t.Fatalf("%s", messages[0].Body)
	}
	must(t, receiver.CompleteMessage(ctx, messages[0], nil))
	n.wait(object{"is": "settled"})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
