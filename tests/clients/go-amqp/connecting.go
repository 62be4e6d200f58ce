package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/coder/websocket"

	"peeklock.test/trial"
)

// credentials are the rule name and key of the broker's connection string.
func credentials(t *trial.Trial) (name, key string) {
	parts := map[string]string{}
	for part := range strings.SplitSeq(t.ConnectionString, ";") {
		field, value, _ := strings.Cut(part, "=")
		parts[field] = value
	}
	return parts["SharedAccessKeyName"], parts["SharedAccessKey"]
}

// connect logs in with SASL PLAIN, as AMQP clients do.
func connect(t *trial.Trial) *amqp.Session {
	return begin(t, dial(t))
}

func dial(t *trial.Trial) *amqp.Conn {
	name, key := credentials(t)
	address := url.URL{Scheme: "amqp", User: url.UserPassword(name, key), Host: net.JoinHostPort(t.Host, t.AMQPPort)}
	connection, err := amqp.Dial(t, address.String(), nil)
	t.Must(err, "dial")
	t.AtEnd(func() { _ = connection.Close() })
	return connection
}

func begin(t *trial.Trial, connection *amqp.Conn) *amqp.Session {
	session, err := connection.NewSession(t, nil)
	t.Must(err, "begin a session")
	return session
}

func connectPlain(t *trial.Trial) {
	passOne(t, connect(t))
	address := fmt.Sprintf("amqp://%s:%s", t.Host, t.AMQPPort)
	for name, options := range map[string]*amqp.ConnOptions{
		"without SASL": nil,
		"anonymously":  {SASLType: amqp.SASLTypeAnonymous()},
	} {
		connection, err := amqp.Dial(t, address, options)
		t.Must(err, "dial "+name)
		passOne(t, begin(t, connection))
		t.Must(connection.Close(), "close")
	}
}

// connectTLS shows a token instead of a password, as cloud clients do.
func connectTLS(t *trial.Trial) {
	connection, err := amqp.Dial(t, "amqps://localhost:"+t.AMQPPort, &amqp.ConnOptions{
		TLSConfig: trusting(t), SASLType: amqp.SASLTypeAnonymous(),
	})
	t.Must(err, "dial")
	t.AtEnd(func() { _ = connection.Close() })
	session := begin(t, connection)
	reply := openNode(t, session, "$cbs").request(t, &amqp.Message{
		ApplicationProperties: map[string]any{
			"operation": "put-token", "type": "servicebus.windows.net:sastoken", "name": "amqps://localhost/",
		},
		Value: token(t, "amqps://localhost/"),
	})
	trial.Equal(t, any(int32(http.StatusAccepted)), reply.ApplicationProperties["status-code"], "what becomes of the token")
	passOne(t, session)
}

func connectWebSocket(t *trial.Trial) {
	address := fmt.Sprintf("wss://localhost:%s/$servicebus/websocket", t.AMQPPort)
	socket, _, err := websocket.Dial(t, address, &websocket.DialOptions{
		Subprotocols: []string{"amqp"},
		HTTPClient:   &http.Client{Transport: &http.Transport{TLSClientConfig: trusting(t)}},
	})
	t.Must(err, "open a WebSocket")
	stream := websocket.NetConn(context.Background(), socket, websocket.MessageBinary)
	name, key := credentials(t)
	connection, err := amqp.NewConn(t, stream, &amqp.ConnOptions{
		HostName: "localhost", SASLType: amqp.SASLTypePlain(name, key),
	})
	t.Must(err, "speak AMQP on it")
	t.AtEnd(func() { _ = connection.Close() })
	passOne(t, begin(t, connection))
}

func trusting(t *trial.Trial) *tls.Config {
	authorities, err := t.Authorities()
	t.Must(err, "read the broker's authority")
	return &tls.Config{RootCAs: authorities}
}

// token is a shared access signature for an hour.
func token(t *trial.Trial, audience string) string {
	name, key := credentials(t)
	resource := url.QueryEscape(audience)
	expiry := fmt.Sprint(time.Now().Add(time.Hour).Unix())
	signature := hmac.New(sha256.New, []byte(key))
	fmt.Fprintf(signature, "%s\n%s", resource, expiry)
	encoded := url.QueryEscape(base64.StdEncoding.EncodeToString(signature.Sum(nil)))
	return fmt.Sprintf("SharedAccessSignature sr=%s&sig=%s&se=%s&skn=%s", resource, encoded, expiry, url.QueryEscape(name))
}

// passOne sends a message through a new queue.
func passOne(t *trial.Trial, session *amqp.Session) {
	queue := t.Queue(nil)
	send(t, session, queue, text("hello"))
	trial.Equal(t, []string{"hello"}, bodies(take(t, newReceiver(t, session, queue, nil), 1)), "what arrived")
}
