package main

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/coder/websocket"

	"peeklock.test/trial"
)

func connectEmulatorString(t *trial.Trial) {
	passOne(t, connect(t))
}

func connectTLS(t *trial.Trial) {
	security := trusting(t)
	security.ServerName = "localhost" // or the SDK would check the certificate against host and port
	passOne(t, connectWith(t, t.TLSConnectionString, &azservicebus.ClientOptions{TLSConfig: security}))
}

func connectWebSocket(t *trial.Trial) {
	browser := &http.Client{Transport: &http.Transport{TLSClientConfig: trusting(t)}}
	passOne(t, connectWith(t, t.TLSConnectionString, &azservicebus.ClientOptions{
		NewWebSocketConn: func(ctx context.Context, arguments azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			connection, _, err := websocket.Dial(ctx, arguments.Host, &websocket.DialOptions{
				Subprotocols: []string{"amqp"}, HTTPClient: browser,
			})
			if err != nil {
				return nil, err
			}
			return websocket.NetConn(context.Background(), connection, websocket.MessageBinary), nil
		},
	}))
}

// trusting is a TLS configuration that knows the broker's own authority.
func trusting(t *trial.Trial) *tls.Config {
	authorities, err := t.Authorities()
	t.Must(err, "read the broker's authority")
	return &tls.Config{RootCAs: authorities}
}

// passOne sends a message through a new queue.
func passOne(t *trial.Trial, client *azservicebus.Client) {
	queue := t.Queue(nil)
	send(t, client, queue, "hello")
	receiver := newReceiver(t, client, queue, nil)
	trial.Equal(t, []string{"hello"}, bodies(take(t, receiver, 1)), "what arrived")
}
