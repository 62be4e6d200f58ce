package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"gocloud.dev/gcerrors"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/azuresb"

	"peeklock.test/trial"
)

const nothingTime = 500 * time.Millisecond

// ---- moves --------------------------------------------------------------------------------------

// pair is a topic with one subscription, both open.
type pair struct {
	t            *trial.Trial
	name         string
	topic        *pubsub.Topic
	subscription *pubsub.Subscription
}

// open makes a topic with the subscription "sub" and opens both by URL.
func open(t *trial.Trial, topicProperties, subscriptionProperties trial.Properties) *pair {
	name := t.Topic(topicProperties)
	t.Subscription(name, "sub", subscriptionProperties)
	topic := openTopic(t, name)
	return &pair{t, name, topic, openSubscription(t, name, "sub")}
}

func openTopic(t *trial.Trial, name string) *pubsub.Topic {
	topic, err := pubsub.OpenTopic(t, "azuresb://"+name)
	t.Must(err, "open topic")
	t.AtEnd(func() { shutDown(topic.Shutdown) })
	return topic
}

func openSubscription(t *trial.Trial, topic, name string) *pubsub.Subscription {
	url := fmt.Sprintf("azuresb://%s?subscription=%s&listener_timeout=1s", topic, name)
	subscription, err := pubsub.OpenSubscription(t, url)
	t.Must(err, "open subscription")
	t.AtEnd(func() { shutDown(subscription.Shutdown) })
	return subscription
}

// shutDown waits for what is under way, but not for what is tried again and again.
func shutDown(how func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = how(ctx)
}

func (p *pair) send(texts ...string) {
	for _, text := range texts {
		p.t.Must(p.topic.Send(p.t, &pubsub.Message{Body: []byte(text)}), "send")
	}
}

// take receives and acknowledges so many; Go CDK keeps no order.
func take(t *trial.Trial, subscription *pubsub.Subscription, count int) []string {
	texts := make([]string, 0, count)
	for range count {
		message, err := subscription.Receive(t)
		t.Must(err, "receive")
		message.Ack()
		texts = append(texts, string(message.Body))
	}
	sort.Strings(texts)
	return texts
}

func nothing(t *trial.Trial, subscription *pubsub.Subscription) {
	ctx, cancel := context.WithTimeout(t, nothingTime)
	defer cancel()
	message, err := subscription.Receive(ctx)
	if err == nil {
		t.Fail("found %q", message.Body)
	}
	t.True(errors.Is(err, context.DeadlineExceeded), "there was nothing: "+err.Error())
}

func (p *pair) thereAndBack() {
	p.send("hello")
	trial.Equal(p.t, []string{"hello"}, take(p.t, p.subscription, 1), "what came")
}

// ---- connecting ---------------------------------------------------------------------------------

func connectEmulatorString(t *trial.Trial) {
	open(t, nil, nil).thereAndBack()
}

// client is one of the SDK's, which Go CDK can be given instead of a URL.
func client(t *trial.Trial, connectionString string, options *azservicebus.ClientOptions) *azservicebus.Client {
	client, err := azuresb.NewClientFromConnectionString(connectionString, options)
	t.Must(err, "make a client")
	t.AtEnd(func() { _ = client.Close(context.Background()) })
	return client
}

func connectTLS(t *trial.Trial) {
	authorities, err := t.Authorities()
	t.Must(err, "read the authority")
	secure := client(t, t.TLSConnectionString, &azservicebus.ClientOptions{
		TLSConfig: &tls.Config{RootCAs: authorities, ServerName: "localhost"},
	})
	name := t.Topic(nil)
	t.Subscription(name, "sub", nil)
	sender, err := azuresb.NewSender(secure, name, nil)
	t.Must(err, "make a sender")
	topic, err := azuresb.OpenTopic(t, sender, nil)
	t.Must(err, "open topic")
	p := &pair{t, name, topic, openSubscription(t, name, "sub")}
	p.thereAndBack()
}

func reconnectAfterRestart(t *trial.Trial) {
	p := open(t, nil, nil)
	p.thereAndBack()
	p.send("kept")
	t.Must(t.Restart(), "restart the broker")
	p.send("sent after")
	trial.Equal(t, []string{"kept", "sent after"}, take(t, p.subscription, 2), "what came")
}

// ---- sending and receiving ----------------------------------------------------------------------

func sendOne(t *trial.Trial) {
	p := open(t, nil, nil)
	sent := &pubsub.Message{Body: []byte("one"), Metadata: map[string]string{"key": "välue ✓"}}
	t.Must(p.topic.Send(t, sent), "send")
	message, err := p.subscription.Receive(t)
	t.Must(err, "receive")
	message.Ack()
	trial.Equal(t, "one", string(message.Body), "body")
	trial.Equal(t, sent.Metadata, message.Metadata, "metadata")
}

func sendMany(t *trial.Trial) {
	p := open(t, nil, nil)
	const count = 300
	var group sync.WaitGroup
	failures := make(chan error, count)
	want := make([]string, count)
	for number := range count {
		want[number] = strconv.Itoa(number)
		group.Go(func() {
			failures <- p.topic.Send(t, &pubsub.Message{Body: []byte(want[number])})
		})
	}
	group.Wait()
	close(failures)
	for err := range failures {
		t.Must(err, "send")
	}
	sort.Strings(want)
	trial.Equal(t, want, take(t, p.subscription, count), "what came")
	t.Note("in no order: its receives run side by side")
}

func sendMegabyte(t *trial.Trial) {
	p := open(t, trial.Properties{"MaxMessageSizeInKilobytes": 4096}, nil)
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	t.Must(p.topic.Send(t, &pubsub.Message{Body: body}), "send")
	message, err := p.subscription.Receive(t)
	t.Must(err, "receive")
	message.Ack()
	t.True(bytes.Equal(body, message.Body), "the body is unharmed")
}

func receiveNoPrefetch(t *trial.Trial) {
	p := open(t, nil, nil)
	p.send("a", "b", "c")
	trial.Equal(t, []string{"a", "b", "c"}, take(t, p.subscription, 3), "what came")
	nothing(t, p.subscription)
}

func complete(t *trial.Trial) {
	p := open(t, nil, trial.Properties{"LockDuration": "PT5S"})
	p.send("a", "b")
	trial.Equal(t, []string{"a", "b"}, take(t, p.subscription, 2), "what came")
	t.Must(p.subscription.Shutdown(t), "wait for the acknowledgements")
	t.Pass(6 * time.Second)
	nothing(t, openSubscription(t, p.name, "sub"))
}

func abandon(t *trial.Trial) {
	p := open(t, nil, nil)
	p.send("again")
	message, err := p.subscription.Receive(t)
	t.Must(err, "receive")
	t.True(message.Nackable(), "a message can be given back")
	message.Nack()
	message, err = p.subscription.Receive(t)
	t.Must(err, "receive again")
	message.Ack()
	var received *azservicebus.ReceivedMessage
	t.True(message.As(&received), "the SDK's message can be had")
	trial.Equal(t, uint32(2), received.DeliveryCount, "delivery count")
	t.Note("nack takes no properties")
}

func receiveAndDelete(t *trial.Trial) {
	p := open(t, nil, nil)
	p.send("a", "b")
	plain := client(t, t.ConnectionString, nil)
	receiver, err := azuresb.NewReceiver(plain, p.name, "sub", &azservicebus.ReceiverOptions{
		ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete,
	})
	t.Must(err, "make a receiver")
	subscription, err := azuresb.OpenSubscription(t, plain, receiver, &azuresb.SubscriptionOptions{
		ReceiveAndDelete: true, ListenerTimeout: time.Second,
	})
	t.Must(err, "open subscription")
	trial.Equal(t, []string{"a", "b"}, take(t, subscription, 2), "what came")
	nothing(t, p.subscription)
}

func lockLost(t *trial.Trial) {
	p := open(t, nil, trial.Properties{"LockDuration": "PT5S"})
	p.send("slow")
	_, err := p.subscription.Receive(t)
	t.Must(err, "receive")
	t.Pass(6 * time.Second)
	trial.Equal(t, []string{"slow"}, take(t, openSubscription(t, p.name, "sub"), 1), "somebody else's")
	t.Note("an acknowledgement has no result to look at")
}

// ---- topics and lifetimes -----------------------------------------------------------------------

func topicTrueFilter(t *trial.Trial) {
	p := open(t, nil, nil)
	t.Subscription(p.name, "other", nil)
	p.send("a", "b")
	for _, subscription := range []*pubsub.Subscription{p.subscription, openSubscription(t, p.name, "other")} {
		trial.Equal(t, []string{"a", "b"}, take(t, subscription, 2), "a copy of its own")
	}
}

func (p *pair) sendColours() {
	for _, colour := range []string{"blue", "red"} {
		message := &pubsub.Message{Body: []byte(colour), Metadata: map[string]string{"colour": colour}}
		p.t.Must(p.topic.Send(p.t, message), "send")
	}
}

func topicSQLFilter(t *trial.Trial) {
	p := open(t, nil, nil)
	t.Filtered(p.name, "red",
		`<Filter i:type="SqlFilter"><SqlExpression>colour = 'red'</SqlExpression></Filter>`,
		`<Action i:type="SqlRuleAction"><SqlExpression>SET seen = 'yes'</SqlExpression></Action>`)
	p.sendColours()
	red := openSubscription(t, p.name, "red")
	message, err := red.Receive(t)
	t.Must(err, "receive")
	message.Ack()
	trial.Equal(t, "red", string(message.Body), "what matches")
	trial.Equal(t, "yes", message.Metadata["seen"], "what the action set")
	nothing(t, red)
}

func topicCorrelationFilter(t *trial.Trial) {
	p := open(t, nil, nil)
	t.Filtered(p.name, "red", `<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType>`+
		`<Key>colour</Key><Value i:type="d:string" xmlns:d="http://www.w3.org/2001/XMLSchema">red</Value>`+
		`</KeyValueOfstringanyType></Properties></Filter>`, "")
	p.sendColours()
	red := openSubscription(t, p.name, "red")
	trial.Equal(t, []string{"red"}, take(t, red, 1), "what matches")
	nothing(t, red)
}

// with sets what only the SDK's own message has.
func with(body string, set func(*azservicebus.Message)) *pubsub.Message {
	return &pubsub.Message{Body: []byte(body), BeforeSend: func(as func(any) bool) error {
		var message *azservicebus.Message
		if !as(&message) {
			return errors.New("no message of the SDK's")
		}
		set(message)
		return nil
	}}
}

func duplicateDetection(t *trial.Trial) {
	p := open(t, trial.Properties{"RequiresDuplicateDetection": true}, nil)
	for _, body := range []string{"first", "second"} {
		t.Must(p.topic.Send(t, with(body, func(message *azservicebus.Message) {
			id := "same"
			message.MessageID = &id
		})), "send")
	}
	trial.Equal(t, []string{"first"}, take(t, p.subscription, 1), "one of two")
	nothing(t, p.subscription)
}

func timeToLive(t *trial.Trial) {
	p := open(t, nil, nil)
	t.Must(p.topic.Send(t, with("stale", func(message *azservicebus.Message) {
		lifetime := 10 * time.Second
		message.TimeToLive = &lifetime
	})), "send")
	p.send("fresh")
	t.Pass(11 * time.Second)
	trial.Equal(t, []string{"fresh"}, take(t, p.subscription, 1), "what still lives")
	nothing(t, p.subscription)
}

// ---- refusals -----------------------------------------------------------------------------------

func errorNotFound(t *trial.Trial) {
	err := openTopic(t, t.Name("nowhere")).Send(t, &pubsub.Message{Body: []byte("x")})
	trial.Equal(t, gcerrors.NotFound, gcerrors.Code(err), fmt.Sprintf("code of %v", err))
	_, err = openSubscription(t, t.Name("nowhere"), "sub").Receive(t)
	trial.Equal(t, gcerrors.NotFound, gcerrors.Code(err), fmt.Sprintf("code of %v", err))
}

func errorUnauthorized(t *trial.Trial) {
	wrong := client(t, strings.Replace(t.ConnectionString, "SAS_KEY_VALUE", "wrong", 1), nil)
	sender, err := azuresb.NewSender(wrong, t.Topic(nil), nil)
	t.Must(err, "make a sender")
	topic, err := azuresb.OpenTopic(t, sender, nil)
	t.Must(err, "open topic")
	ctx, cancel := context.WithTimeout(t, 5*time.Second)
	defer cancel()
	err = topic.Send(ctx, &pubsub.Message{Body: []byte("x")})
	var refusal *azservicebus.Error
	t.True(errors.As(err, &refusal), fmt.Sprintf("the SDK's error: %v", err))
	trial.Equal(t, azservicebus.CodeUnauthorizedAccess, refusal.Code, "code")
}

func errorQuota(t *trial.Trial) {
	p := open(t, trial.Properties{"MaxSizeInMegabytes": 1}, nil)
	var err error
	for range 10 {
		ctx, cancel := context.WithTimeout(t, 2*time.Second)
		err = p.topic.Send(ctx, &pubsub.Message{Body: make([]byte, 200_000)})
		cancel()
		if err != nil {
			break
		}
	}
	t.True(err != nil, "a full topic takes no more")
	t.Note("it takes a full topic for a passing trouble and tries again until its time is up")
}

func errorTooLarge(t *trial.Trial) {
	p := open(t, trial.Properties{"MaxMessageSizeInKilobytes": 1024}, nil)
	ctx, cancel := context.WithTimeout(t, 5*time.Second)
	defer cancel()
	err := p.topic.Send(ctx, &pubsub.Message{Body: make([]byte, 1<<21)})
	t.True(err != nil, "two megabytes are refused")
	p.thereAndBack()
}
