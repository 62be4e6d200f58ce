package main

import (
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/Azure/go-amqp"

	"peeklock.test/trial"
)

func errorNotFound(t *trial.Trial) {
	session := connect(t)
	_, err := session.NewSender(t, "no-such-queue", nil)
	condition(t, amqp.ErrCondNotFound, err, "send to nowhere")
	_, err = session.NewReceiver(t, "no-such-queue", nil)
	condition(t, amqp.ErrCondNotFound, err, "receive from nowhere")
	refusal := trial.Fails[*amqp.Error](t, err, "receive from nowhere")
	t.True(strings.Contains(refusal.Description, "TrackingId"), "the refusal can be traced")
	passOne(t, session)
}

func errorUnauthorized(t *trial.Trial) {
	name, _ := credentials(t)
	address := url.URL{Scheme: "amqp", User: url.UserPassword(name, "wrong"), Host: net.JoinHostPort(t.Host, t.AMQPPort)}
	_, err := amqp.Dial(t, address.String(), nil)
	t.True(err != nil && strings.Contains(err.Error(), "SASL PLAIN auth failed"), "a wrong key is no good")
}

func errorQuota(t *trial.Trial) {
	session, queue := connect(t), t.Queue(trial.Properties{"MaxSizeInMegabytes": 1})
	sender := newSender(t, session, queue)
	block := amqp.NewMessage(make([]byte, 200_000))
	var err error
	for range 10 {
		if err = sender.Send(t, block, nil); err != nil {
			break
		}
	}
	condition(t, amqp.ErrCondResourceLimitExceeded, err, "send to a full queue")
	take(t, newReceiver(t, session, queue, nil), 3)
	t.Must(sender.Send(t, block, nil), "send when there is room again")
}

func errorTooLarge(t *trial.Trial) {
	session, queue := connect(t), t.Queue(trial.Properties{"MaxMessageSizeInKilobytes": 1024})
	sender := newSender(t, session, queue)
	trial.Equal(t, 1<<20, sender.MaxMessageSize(), "the limit is known")
	condition(t, amqp.ErrCondMessageSizeExceeded, sender.Send(t, amqp.NewMessage(make([]byte, 1<<21)), nil), "send two megabytes")
	t.Must(sender.Send(t, text("small"), nil), "send something smaller on the same link")
}

func errorNotFoundOperations(t *trial.Trial) {
	session, nowhere, topic := connect(t), t.Name("nowhere"), t.Topic(nil)
	for _, address := range []string{
		nowhere, nowhere + "/$DeadLetterQueue", topic + "/Subscriptions/nowhere",
	} {
		_, err := session.NewReceiver(t, address, nil)
		condition(t, amqp.ErrCondNotFound, err, "receive from "+address)
	}
	_, err := session.NewSender(t, nowhere, nil)
	condition(t, amqp.ErrCondNotFound, err, "send to nowhere")
	for _, entity := range []string{nowhere, topic + "/Subscriptions/nowhere"} {
		status, _ := manage(t, session, entity).ask(t, "peek-message", map[string]any{
			"from-sequence-number": int64(0), "message-count": int32(1),
		})
		trial.Equal(t, http.StatusNotFound, int(status), "peek in "+entity)
	}
	for _, wanted := range []any{"s", nil} {
		_, err := session.NewReceiver(t, nowhere, wanting(wanted))
		condition(t, amqp.ErrCondNotFound, err, "ask for a session")
	}
}
