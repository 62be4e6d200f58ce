package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

const timeLimit = 90 * time.Second

// Scenario is one thing a client must be able to do.
type Scenario struct {
	ID    string
	Short bool
	Run   func(*Trial)
}

// Trial is one run of a scenario. It is also the context of everything the scenario does.
type Trial struct {
	context.Context
	*Broker

	endings []func()
	note    string
}

type failure string

type skip string

// Skip is a scenario this client has no means for.
func Skip(reason string) func(*Trial) {
	return func(t *Trial) { t.Skip("%s", reason) }
}

// Skip ends the scenario as one this client has no means for.
func (t *Trial) Skip(format string, arguments ...any) {
	panic(skip(fmt.Sprintf(format, arguments...)))
}

// Fail ends the scenario.
func (t *Trial) Fail(format string, arguments ...any) {
	panic(failure(fmt.Sprintf(format, arguments...)))
}

// Must ends the scenario if there is an error.
func (t *Trial) Must(err error, doing string) {
	if err != nil {
		t.Fail("%s: %v", doing, err)
	}
}

// True ends the scenario unless something holds.
func (t *Trial) True(holds bool, what string) {
	if !holds {
		t.Fail("not true: %s", what)
	}
}

// Note puts something into the report of a scenario that passes.
func (t *Trial) Note(text string) {
	t.note = text
}

// AtEnd has something done when the scenario is over, last come first served.
func (t *Trial) AtEnd(do func()) {
	t.endings = append(t.endings, do)
}

// Equal ends the scenario unless two values are the same.
func Equal[V any](t *Trial, want, got V, what string) {
	if !reflect.DeepEqual(want, got) {
		t.Fail("%s: expected %#v, got %#v", what, want, got)
	}
}

// Fails ends the scenario unless the error is of a type, and gives the error in that type.
func Fails[E error](t *Trial, err error, doing string) E {
	var wanted E
	if !errors.As(err, &wanted) {
		t.Fail("%s: expected %T, got %T: %v", doing, wanted, err, err)
	}
	return wanted
}

// ---- what a scenario asks of the broker, ending the scenario if it cannot be had --------------

// Queue creates a queue.
func (t *Trial) Queue(properties Properties) string {
	name := t.Name("queue")
	t.Must(t.Put(name, "QueueDescription", properties), "create queue")
	return name
}

// Topic creates a topic.
func (t *Trial) Topic(properties Properties) string {
	name := t.Name("topic")
	t.Must(t.Put(name, "TopicDescription", properties), "create topic")
	return name
}

// Subscription creates a subscription that takes everything.
func (t *Trial) Subscription(topic, name string, properties Properties) {
	t.Must(t.Put(topic+"/Subscriptions/"+name, "SubscriptionDescription", properties), "create subscription")
}

// Filtered creates a subscription with one rule, whose filter and action are given as XML.
func (t *Trial) Filtered(topic, name, filter, action string) {
	path := topic + "/Subscriptions/" + name
	t.Subscription(topic, name, nil)
	t.Must(t.PutRule(path+"/Rules/only", filter, action), "create rule")
	t.Must(t.Delete(path+"/Rules/$Default"), "delete the default rule")
}

// NobodyConnected makes sure that the broker has no connection left.
func (t *Trial) NobodyConnected() {
	for {
		count, err := t.Connections()
		t.Must(err, "count connections")
		if count == 0 {
			return
		}
		select {
		case <-t.Done():
			t.Fail("%d connections are left", count)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Pass lets time pass for the broker.
func (t *Trial) Pass(by time.Duration) {
	t.Must(t.Advance(by), "move the clock")
}

// Clock is the broker's time.
func (t *Trial) Clock() time.Time {
	now, err := t.Now()
	t.Must(err, "read the clock")
	return now
}

// ---- running ----------------------------------------------------------------------------------

// Client is who is tried: its name in the matrix, the modules under test, and what it can do.
type Client struct {
	Name      string
	Modules   []string
	Scenarios []Scenario
	// Faults are scenarios with faults that the broker is told to make.
	Faults []Scenario
	// ReadTypes reads back what another client wrote to a queue.
	ReadTypes func(t *Trial, queue, writer string)
}

// Run does what the runner asks for: all scenarios, the short list, or to read what another client
// has written. Scenarios can also be named by hand. Each is reported on a line of its own.
func Run(client Client) {
	say(map[string]any{"versions": versions(client.Modules)})
	broker := brokerFromEnvironment(client.Name)
	if len(os.Args) == 4 && os.Args[1] == "read-types" {
		report(broker, Scenario{ID: "read-types", Run: func(t *Trial) { client.ReadTypes(t, os.Args[2], os.Args[3]) }})
		return
	}
	if len(os.Args) == 2 && os.Args[1] == "faults" {
		for _, scenario := range client.Faults {
			report(broker, scenario)
		}
		return
	}
	short := os.Getenv("PEEKLOCK_SHORT") == "1"
	wanted := os.Args[1:]
	for _, scenario := range client.Scenarios {
		if slices.Contains(wanted, scenario.ID) || len(wanted) == 0 && (scenario.Short || !short) {
			report(broker, scenario)
		}
	}
}

// versions are those of the modules this program was built with, by the last part of their names.
func versions(modules []string) map[string]string {
	found := map[string]string{}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if slices.Contains(modules, module.Path) {
				found[path.Base(module.Path)] = strings.TrimPrefix(module.Version, "v")
			}
		}
	}
	return found
}

func say(line any) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

func report(broker *Broker, scenario Scenario) {
	outcome, detail := run(broker, scenario)
	say(map[string]string{"scenario": scenario.ID, "outcome": outcome, "detail": detail})
}

func run(broker *Broker, scenario Scenario) (outcome, detail string) {
	ctx, cancel := context.WithTimeout(context.Background(), timeLimit)
	defer cancel()
	trial := &Trial{Context: ctx, Broker: broker}
	defer func() {
		for index := len(trial.endings) - 1; index >= 0; index-- {
			trial.endings[index]()
		}
	}()
	defer func() {
		switch ended := recover().(type) {
		case nil:
			outcome, detail = "passed", trial.note
		case failure:
			outcome, detail = "failed", string(ended)
		case skip:
			outcome, detail = "skipped", string(ended)
		default:
			outcome, detail = "failed", fmt.Sprintf("panic: %v\n%s", ended, debug.Stack())
		}
	}()
	scenario.Run(trial)
	return outcome, detail
}
