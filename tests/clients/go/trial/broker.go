// Package trial is what the Go clients share: the broker as the runner describes it, and the
// report of scenarios. It knows no messaging client and has no dependencies.
package trial

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const serviceBusSchema = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"

// Properties are those of an entity, by their Service Bus names.
type Properties map[string]any

// Broker is the broker under test; its strings come from the runner's environment.
type Broker struct {
	Host                  string
	AMQPPort              string
	ConnectionString      string
	AdminConnectionString string
	TLSConnectionString   string
	// StrictQueue is a queue of the strict broker that nobody else uses.
	StrictQueue string

	client        string
	run           string
	authorityFile string
	httpAddress   string
	answers       *bufio.Reader
	names         atomic.Int64
}

func brokerFromEnvironment(client string) *Broker {
	host := os.Getenv("PEEKLOCK_HOST")
	return &Broker{
		Host:                  host,
		AMQPPort:              os.Getenv("PEEKLOCK_AMQP_PORT"),
		ConnectionString:      os.Getenv("PEEKLOCK_CONNECTION_STRING"),
		AdminConnectionString: os.Getenv("PEEKLOCK_ADMIN_CONNECTION_STRING"),
		TLSConnectionString:   os.Getenv("PEEKLOCK_TLS_CONNECTION_STRING"),
		StrictQueue:           os.Getenv("PEEKLOCK_STRICT_QUEUE"),
		client:                client,
		run:                   os.Getenv("PEEKLOCK_RUN"),
		authorityFile:         os.Getenv("PEEKLOCK_CA_FILE"),
		httpAddress:           fmt.Sprintf("http://%s:%s", host, os.Getenv("PEEKLOCK_HTTP_PORT")),
		answers:               bufio.NewReader(os.Stdin),
	}
}

// Strict is a connection string for the strict broker, with a key for SEND, LISTEN or MANAGE.
func (b *Broker) Strict(claim string) string {
	return os.Getenv("PEEKLOCK_STRICT_" + claim + "_CONNECTION_STRING")
}

// Name gives an entity name nobody else uses.
func (b *Broker) Name(what string) string {
	return fmt.Sprintf("%s-%s-%s-%d", b.run, b.client, what, b.names.Add(1))
}

// Put creates an entity over plain HTTP.
func (b *Broker) Put(path, kind string, properties Properties) error {
	names := make([]string, 0, len(properties))
	for name := range properties {
		names = append(names, name)
	}
	sort.Strings(names)
	var elements strings.Builder
	for _, name := range names {
		fmt.Fprintf(&elements, "<%s>", name)
		if err := xml.EscapeText(&elements, fmt.Append(nil, properties[name])); err != nil {
			return err
		}
		fmt.Fprintf(&elements, "</%s>", name)
	}
	return b.putText(path, fmt.Sprintf("<%s xmlns=%q>%s</%s>", kind, serviceBusSchema, elements.String(), kind))
}

// PutRule creates a rule whose filter and action are given as XML elements; the action may be empty.
func (b *Broker) PutRule(path, filter, action string) error {
	return b.putText(path, fmt.Sprintf(
		`<RuleDescription xmlns=%q xmlns:i="http://www.w3.org/2001/XMLSchema-instance">%s%s</RuleDescription>`,
		serviceBusSchema, filter, action))
}

func (b *Broker) putText(path, description string) error {
	entry := `<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">` +
		description + `</content></entry>`
	_, err := b.ask(http.MethodPut, "/"+path+"?api-version=2021-05", []byte(entry))
	return err
}

// Delete removes an entity over plain HTTP.
func (b *Broker) Delete(path string) error {
	_, err := b.ask(http.MethodDelete, "/"+path+"?api-version=2021-05", nil)
	return err
}

// Advance moves the broker's clock, so that nothing need be waited for.
func (b *Broker) Advance(by time.Duration) error {
	_, err := b.moveClock(by)
	return err
}

// Now is the broker's time, which scenarios move.
func (b *Broker) Now() (time.Time, error) {
	return b.moveClock(0)
}

func (b *Broker) moveClock(by time.Duration) (time.Time, error) {
	var clock struct {
		NowMS int64 `json:"now_ms"`
	}
	body := fmt.Appendf(nil, `{"advance_ms": %d}`, by.Milliseconds())
	text, err := b.ask(http.MethodPost, "/$peeklock/clock", body)
	if err == nil {
		err = json.Unmarshal(text, &clock)
	}
	return time.UnixMilli(clock.NowMS), err
}

// Fault makes operations fail (docs/control-api.md, Faults); the name of the rule.
func (b *Broker) Fault(rule map[string]any) (string, error) {
	var made struct {
		Name string `json:"name"`
	}
	body, err := json.Marshal(rule)
	if err != nil {
		return "", err
	}
	text, err := b.ask(http.MethodPost, "/$peeklock/v1/faults", body)
	if err == nil {
		err = json.Unmarshal(text, &made)
	}
	return made.Name, err
}

// Hits is how often a rule has acted.
func (b *Broker) Hits(name string) (int, error) {
	var rule struct {
		Hits int `json:"hits"`
	}
	text, err := b.ask(http.MethodGet, "/$peeklock/v1/faults/"+name, nil)
	if err == nil {
		err = json.Unmarshal(text, &rule)
	}
	return rule.Hits, err
}

// Connections is how many AMQP connections the broker has.
func (b *Broker) Connections() (int, error) {
	text, err := b.ask(http.MethodGet, "/metrics", nil)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "peeklock_connections "); found {
			count, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return int(count), err
		}
	}
	return 0, errors.New("/metrics does not count connections")
}

// Restart asks the runner for a new broker process on the same ports and storage.
func (b *Broker) Restart() error {
	fmt.Println(`{"control": "restart"}`)
	line, err := b.answers.ReadString('\n')
	if err == nil && strings.TrimSpace(line) != "restarted" {
		err = fmt.Errorf("the runner answered %q", line)
	}
	return err
}

// Authorities are what a client must trust to speak TLS with the broker.
func (b *Broker) Authorities() (*x509.CertPool, error) {
	text, err := os.ReadFile(b.authorityFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate", b.authorityFile)
	}
	return pool, nil
}

func (b *Broker) ask(method, path string, body []byte) ([]byte, error) {
	request, err := http.NewRequest(method, b.httpAddress+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s %s: %s %s", method, path, response.Status, text)
	}
	return text, err
}
