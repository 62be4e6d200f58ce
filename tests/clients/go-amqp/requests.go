package main

import (
	"fmt"
	"net/http"

	"github.com/Azure/go-amqp"

	"peeklock.test/trial"
)

// node is something of the broker's that answers requests.
type node struct {
	sender   *amqp.Sender
	receiver *amqp.Receiver
	replyTo  string
	count    int
}

func openNode(t *trial.Trial, session *amqp.Session, address string) *node {
	replyTo := t.Name("replies")
	return &node{
		sender:   newSender(t, session, address),
		receiver: newReceiver(t, session, address, &amqp.ReceiverOptions{TargetAddress: replyTo}),
		replyTo:  replyTo,
	}
}

// manage opens the node of an entity that does what AMQP has no word for.
func manage(t *trial.Trial, session *amqp.Session, entity string) *node {
	return openNode(t, session, entity+"/$management")
}

func (n *node) request(t *trial.Trial, message *amqp.Message) *amqp.Message {
	n.count++
	id := fmt.Sprint(n.count)
	message.Properties = &amqp.MessageProperties{MessageID: id, ReplyTo: &n.replyTo}
	t.Must(n.sender.Send(t, message, nil), "send a request")
	reply := receive(t, n.receiver)
	t.Must(n.receiver.AcceptMessage(t, reply), "accept the reply")
	trial.Equal(t, any(id), reply.Properties.CorrelationID, "correlation id")
	return reply
}

// ask runs an operation and gives status and body of the answer.
func (n *node) ask(t *trial.Trial, operation string, body map[string]any) (int32, map[string]any) {
	reply := n.request(t, &amqp.Message{
		ApplicationProperties: map[string]any{"operation": "com.microsoft:" + operation},
		Value:                 body,
	})
	status, _ := reply.ApplicationProperties["statusCode"].(int32)
	answer, _ := reply.Value.(map[string]any)
	return status, answer
}

// do runs an operation that must succeed.
func (n *node) do(t *trial.Trial, operation string, body map[string]any) map[string]any {
	status, answer := n.ask(t, operation, body)
	trial.Equal(t, http.StatusOK, int(status), operation)
	return answer
}

// messages are those an answer brings, still encoded.
func messages(answer map[string]any) [][]byte {
	var encoded [][]byte
	entries, _ := answer["messages"].([]any)
	for _, entry := range entries {
		one, _ := entry.(map[string]any)["message"].([]byte)
		encoded = append(encoded, one)
	}
	return encoded
}

func decoded(t *trial.Trial, encoded [][]byte) []*amqp.Message {
	messages := make([]*amqp.Message, len(encoded))
	for index, one := range encoded {
		messages[index] = new(amqp.Message)
		t.Must(messages[index].UnmarshalBinary(one), "decode a message")
	}
	return messages
}
