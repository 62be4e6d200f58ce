module peeklock.test/clients/go-amqp

go 1.25

require (
	github.com/Azure/go-amqp v1.7.0
	github.com/coder/websocket v1.8.15
	peeklock.test/trial v0.0.0
)

replace peeklock.test/trial => ../go/trial
