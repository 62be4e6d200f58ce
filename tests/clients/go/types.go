package main

import (
	"maps"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"peeklock.test/trial"
)

var special = trial.Special{
	UUID:   func(id [16]byte) any { return amqp.UUID(id) },
	Symbol: func(text string) any { return amqp.Symbol(text) },
}

// field is where the SDK keeps a property that is not the application's own.
type field struct {
	set func(*azservicebus.Message, string)
	get func(*azservicebus.ReceivedMessage) *string
}

var fields = map[string]field{
	"message-id": {
		func(message *azservicebus.Message, value string) { message.MessageID = &value },
		func(message *azservicebus.ReceivedMessage) *string { return &message.MessageID },
	},
	"correlation-id": {
		func(message *azservicebus.Message, value string) { message.CorrelationID = &value },
		func(message *azservicebus.ReceivedMessage) *string { return message.CorrelationID },
	},
	"subject": {
		func(message *azservicebus.Message, value string) { message.Subject = &value },
		func(message *azservicebus.ReceivedMessage) *string { return message.Subject },
	},
	"content-type": {
		func(message *azservicebus.Message, value string) { message.ContentType = &value },
		func(message *azservicebus.ReceivedMessage) *string { return message.ContentType },
	},
	"to": {
		func(message *azservicebus.Message, value string) { message.To = &value },
		func(message *azservicebus.ReceivedMessage) *string { return message.To },
	},
	"reply-to": {
		func(message *azservicebus.Message, value string) { message.ReplyTo = &value },
		func(message *azservicebus.ReceivedMessage) *string { return message.ReplyTo },
	},
	"session-id": {
		func(message *azservicebus.Message, value string) { message.SessionID = &value },
		func(message *azservicebus.ReceivedMessage) *string { return message.SessionID },
	},
	"reply-to-session-id": {
		func(message *azservicebus.Message, value string) { message.ReplyToSessionID = &value },
		func(message *azservicebus.ReceivedMessage) *string { return message.ReplyToSessionID },
	},
	"partition-key": {
		func(message *azservicebus.Message, value string) { message.PartitionKey = &value },
		func(message *azservicebus.ReceivedMessage) *string { return message.PartitionKey },
	},
}

func propertiesRoundTrip(t *trial.Trial) {
	client, queue := connect(t), t.TypesQueue()
	message := &azservicebus.Message{ApplicationProperties: map[string]any{}}
	var written []trial.Row
	for _, row := range t.Types() {
		if put(message, row) {
			written = append(written, row)
		}
	}
	message.ApplicationProperties[trial.Written] = trial.Names(written)
	sendMessages(t, client, queue, message)
	readBack(t, newReceiver(t, client, queue, nil))
}

func readTypes(t *trial.Trial, queue, _ string) {
	client := connectWith(t, t.ConnectionString, &azservicebus.ClientOptions{
		RetryOptions: azservicebus.RetryOptions{MaxRetries: -1},
	})
	apart := readBack(t, newReceiver(t, client, queue, nil))
	if len(apart) == 0 {
		return
	}
	receiver := newReceiver(t, client, queue+trial.Apart, nil)
	if _, err := receiver.PeekMessages(t, 1, nil); trial.Unreadable(err) {
		t.Note("unread: " + trial.Names(apart))
		return
	}
	compare(t, takeAndReturn(t, receiver), apart)
}

// put writes a row into a message; false if the SDK has no way to do so.
func put(message *azservicebus.Message, row trial.Row) bool {
	switch {
	case row.IsApplicationProperty():
		value, known := row.Typed(special)
		if known {
			message.ApplicationProperties[row.Name] = value
		}
		return known
	case row.Name == "time-to-live":
		message.TimeToLive = to.Ptr(row.Duration())
	case row.Name == "body":
		body, _ := row.Typed(special)
		message.Body = body.([]byte)
	default:
		field, known := fields[row.Name]
		if known {
			field.set(message, row.Value)
		}
		return known
	}
	return true
}

// readBack compares a message with the rows it says it has; what it says is apart is the answer.
func readBack(t *trial.Trial, receiver *azservicebus.Receiver) (apart []trial.Row) {
	message := takeAndReturn(t, receiver)
	names, _ := message.ApplicationProperties[trial.Written].(string)
	here, apart := t.Named(names)
	compare(t, message, here, trial.Written)
	return apart
}

func takeAndReturn(t *trial.Trial, receiver *azservicebus.Receiver) *azservicebus.ReceivedMessage {
	message := receive(t, receiver, 1)[0]
	t.Must(receiver.AbandonMessage(t, message, nil), "give it back")
	return message
}

// compare makes sure that a message has these rows, and these application properties besides.
func compare(t *trial.Trial, message *azservicebus.ReceivedMessage, rows []trial.Row, properties ...string) {
	for _, row := range rows {
		switch {
		case row.IsApplicationProperty():
			value, found := message.ApplicationProperties[row.Name]
			t.True(found, row.Name+" is there")
			row.Matches(t, value)
			properties = append(properties, row.Name)
		case row.Name == "time-to-live":
			trial.Equal(t, row.Duration(), message.TimeToLive.Round(time.Millisecond), row.Name)
		case row.Name == "body":
			row.Matches(t, message.Body)
		default:
			value := fields[row.Name].get(message)
			t.True(value != nil, row.Name+" is there")
			trial.Equal(t, row.Value, *value, row.Name)
		}
	}
	trial.Equal(t, slices.Sorted(slices.Values(properties)),
		slices.Sorted(maps.Keys(message.ApplicationProperties)), "application properties")
}
