package main

import (
	"net/url"
	"strings"

	"github.com/Azure/go-amqp"

	"peeklock.test/trial"
)

// strictly connects to the strict broker with the key of a claim.
func strictly(t *trial.Trial, claim string) *amqp.Session {
	parts := map[string]string{}
	for part := range strings.SplitSeq(t.Strict(claim), ";") {
		field, value, _ := strings.Cut(part, "=")
		parts[field] = value
	}
	address := url.URL{
		Scheme: "amqp",
		User:   url.UserPassword(parts["SharedAccessKeyName"], parts["SharedAccessKey"]),
		Host:   strings.TrimPrefix(parts["Endpoint"], "sb://"),
	}
	connection, err := amqp.Dial(t, address.String(), nil)
	t.Must(err, "dial the strict broker")
	t.AtEnd(func() { _ = connection.Close() })
	return begin(t, connection)
}

func strictClaims(t *trial.Trial) {
	queue := t.StrictQueue
	sending := strictly(t, "SEND")
	send(t, sending, queue, text("sent"))
	_, err := sending.NewReceiver(t, queue, nil)
	condition(t, amqp.ErrCondUnauthorizedAccess, err, "receive with a key for sending")

	listening := strictly(t, "LISTEN")
	_, err = listening.NewSender(t, queue, nil)
	condition(t, amqp.ErrCondUnauthorizedAccess, err, "send with a key for listening")
	trial.Equal(t, []string{"sent"}, bodies(take(t, newReceiver(t, listening, queue, nil), 1)), "what is received")

	managing := strictly(t, "MANAGE")
	send(t, managing, queue, text("managed"))
	trial.Equal(t, []string{"managed"}, bodies(take(t, newReceiver(t, managing, queue, nil), 1)), "what is received")
}

// fullBatch adds smaller and smaller messages, so that hardly a byte is left.
func fullBatch(t *trial.Trial) {
	session := strictly(t, "MANAGE")
	sender := newSender(t, session, t.StrictQueue)
	batch := &amqp.Message{Format: batchFormat}
	for _, size := range []int{5000, 500, 50, 5, 0} {
		encoded, err := amqp.NewMessage(make([]byte, size)).MarshalBinary()
		t.Must(err, "encode a message")
		for {
			longer := &amqp.Message{Format: batchFormat, Data: append(batch.Data, encoded)}
			whole, err := longer.MarshalBinary()
			t.Must(err, "encode the batch")
			if uint64(len(whole)) > sender.MaxMessageSize() {
				break
			}
			batch = longer
		}
	}
	t.Must(sender.Send(t, batch, nil), "send the batch")
	take(t, newReceiver(t, session, t.StrictQueue, nil), len(batch.Data))
}
