// The control API of a running broker, as far as the tests need it: a namespace for each test, waiting, the clock.
//
//	peeklock serve --storage memory:
//	cd examples/go && go test ./...
package orders

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"testing"
)

// object is short for a JSON object.
type object = map[string]any

// namespace has its own entities, key and clock. Tests in parallel do not see each other's messages.
type namespace struct {
	t                *testing.T
	name             string
	ConnectionString string
}

// newNamespace creates a namespace that is deleted when the test ends.
func newNamespace(t *testing.T, topology object) *namespace {
	t.Helper()
	var created struct {
		Name             string `json:"name"`
		ConnectionString string `json:"connection_string"`
	}
	request(t, http.MethodPost, "/namespaces", object{"topology": topology}, &created)
	t.Cleanup(func() { request(t, http.MethodDelete, "/namespaces/"+created.Name, nil, nil) })
	return &namespace{t, created.Name, created.ConnectionString}
}

// wait returns when the conditions hold, without polling: see docs/control-api.md.
func (n *namespace) wait(conditions ...object) {
	n.t.Helper()
	request(n.t, http.MethodPost, "/namespaces/"+n.name+"/wait", object{"conditions": conditions}, nil)
}

// message is a part of what the broker tells about a message.
type message struct {
	MessageID  string `json:"message_id"`
	DeadLetter struct {
		Reason string `json:"reason"`
	} `json:"dead_letter"`
}

func (n *namespace) deadLetters(entity string) []message {
	n.t.Helper()
	var found struct {
		Messages []message `json:"messages"`
	}
	path := "/namespaces/" + n.name + "/messages?sub_queue=dead_letter&entity=" + entity
	request(n.t, http.MethodGet, path, nil, &found)
	return found.Messages
}

func (n *namespace) advanceClock(seconds float64) {
	n.t.Helper()
	request(n.t, http.MethodPost, "/namespaces/"+n.name+"/clock/advance", object{"seconds": seconds}, nil)
}

func request(t *testing.T, method, path string, body object, answer any) {
	t.Helper()
	address := os.Getenv("PEEKLOCK_URL")
	if address == "" {
		address = "http://localhost:5300"
	}
	content := []byte{}
	if body != nil {
		content, _ = json.Marshal(body)
	}
	sent, err := http.NewRequest(method, address+"/$peeklock/v1"+path, bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(sent)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 400 {
		t.Fatalf("%s %s: %s %v", method, path, text, err)
	}
	if answer != nil {
		if err := json.Unmarshal(text, answer); err != nil {
			t.Fatal(err)
		}
	}
}
