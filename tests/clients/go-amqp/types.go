package main

import (
	"maps"
	"slices"
	"time"

	"github.com/Azure/go-amqp"

	"peeklock.test/trial"
)

const partitionKey = "x-opt-partition-key"

var special = trial.Special{
	UUID:   func(id [16]byte) any { return amqp.UUID(id) },
	Symbol: func(text string) any { return amqp.Symbol(text) },
}

// fields are the standard properties that are strings.
var fields = map[string]func(*amqp.MessageProperties) **string{
	"subject":             func(properties *amqp.MessageProperties) **string { return &properties.Subject },
	"content-type":        func(properties *amqp.MessageProperties) **string { return &properties.ContentType },
	"to":                  func(properties *amqp.MessageProperties) **string { return &properties.To },
	"reply-to":            func(properties *amqp.MessageProperties) **string { return &properties.ReplyTo },
	"session-id":          func(properties *amqp.MessageProperties) **string { return &properties.GroupID },
	"reply-to-session-id": func(properties *amqp.MessageProperties) **string { return &properties.ReplyToGroupID },
}

// identifiers are the standard properties that may be of several types.
var identifiers = map[string]func(*amqp.MessageProperties) *any{
	"message-id":     func(properties *amqp.MessageProperties) *any { return &properties.MessageID },
	"correlation-id": func(properties *amqp.MessageProperties) *any { return &properties.CorrelationID },
}

func propertiesRoundTrip(t *trial.Trial) {
	session, queue := connect(t), t.TypesQueue()
	message := &amqp.Message{
		Properties: new(amqp.MessageProperties), ApplicationProperties: map[string]any{},
	}
	var written []trial.Row
	for _, row := range t.Types() {
		if put(message, row) {
			written = append(written, row)
		}
	}
	message.ApplicationProperties[trial.Written] = trial.Names(written)
	send(t, session, queue, message)
	readBack(t, newReceiver(t, session, queue, nil))
}

func readTypes(t *trial.Trial, queue, _ string) {
	session := connect(t)
	apart := readBack(t, newReceiver(t, session, queue, nil))
	if len(apart) == 0 {
		return
	}
	answer := manage(t, session, queue+trial.Apart).do(t, "peek-message", map[string]any{
		"from-sequence-number": int64(0), "message-count": int32(1),
	})
	if trial.Unreadable(new(amqp.Message).UnmarshalBinary(messages(answer)[0])) {
		t.Note("unread: " + trial.Names(apart))
		return
	}
	compare(t, takeAndReturn(t, newReceiver(t, session, queue+trial.Apart, nil)), apart)
}

// put writes a row into a message; false if go-amqp has no way to do so.
func put(message *amqp.Message, row trial.Row) bool {
	value, known := row.Typed(special)
	switch {
	case row.IsApplicationProperty():
		if known {
			message.ApplicationProperties[row.Name] = value
		}
		return known
	case row.Name == "time-to-live":
		message.Header = &amqp.MessageHeader{TTL: row.Duration()}
	case row.Name == "body":
		message.Data = [][]byte{value.([]byte)}
	case row.Name == "partition-key":
		message.Annotations = amqp.Annotations{partitionKey: value}
	case fields[row.Name] != nil:
		*fields[row.Name](message.Properties) = &row.Value
	case identifiers[row.Name] != nil:
		*identifiers[row.Name](message.Properties) = value
	default:
		return false
	}
	return true
}

// readBack compares a message with the rows it says it has; what it says is apart is the answer.
func readBack(t *trial.Trial, receiver *amqp.Receiver) (apart []trial.Row) {
	message := takeAndReturn(t, receiver)
	names, _ := message.ApplicationProperties[trial.Written].(string)
	here, apart := t.Named(names)
	compare(t, message, here, trial.Written)
	return apart
}

func takeAndReturn(t *trial.Trial, receiver *amqp.Receiver) *amqp.Message {
	message := receive(t, receiver)
	t.Must(receiver.ReleaseMessage(t, message), "give it back")
	return message
}

// compare makes sure that a message has these rows, and these application properties besides.
func compare(t *trial.Trial, message *amqp.Message, rows []trial.Row, properties ...string) {
	for _, row := range rows {
		switch {
		case row.IsApplicationProperty():
			value, found := message.ApplicationProperties[row.Name]
			t.True(found, row.Name+" is there")
			row.Matches(t, value)
			properties = append(properties, row.Name)
		case row.Name == "time-to-live":
			trial.Equal(t, row.Duration(), message.Header.TTL.Round(time.Millisecond), row.Name)
		case row.Name == "body":
			row.Matches(t, message.GetData())
		case row.Name == "partition-key":
			row.Matches(t, message.Annotations[partitionKey])
		case fields[row.Name] != nil:
			value := *fields[row.Name](message.Properties)
			t.True(value != nil, row.Name+" is there")
			trial.Equal(t, row.Value, *value, row.Name)
		default:
			row.Matches(t, *identifiers[row.Name](message.Properties))
		}
	}
	trial.Equal(t, slices.Sorted(slices.Values(properties)),
		slices.Sorted(maps.Keys(message.ApplicationProperties)), "application properties")
}
