package trial

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Written is the application property that names the rows a client wrote.
const Written = "written"

// Apart is what the name of the queue for rows apart has at its end.
const Apart = "-apart"

// .NET counts time in ticks.
const nanosecondsPerTick = 100

// Row is one line of the table of types: a property, in AMQP's words, and its value as text.
type Row struct {
	Name, Section, Type, Value string
	// Apart are rows that some library cannot read: they are in a message of their own.
	Apart bool
}

// IsApplicationProperty tells the rows an application makes up from those AMQP knows.
func (r Row) IsApplicationProperty() bool {
	return r.Section == "application-properties"
}

// Types are the rows every client knows of.
func (t *Trial) Types() []Row {
	text, err := os.ReadFile(os.Getenv("PEEKLOCK_TYPES_FILE"))
	t.Must(err, "read the table of types")
	var table struct{ Rows []Row }
	t.Must(json.Unmarshal(text, &table), "understand the table of types")
	return table.Rows
}

// TypesQueue is where this client leaves its message for the others.
func (t *Trial) TypesQueue() string {
	queue := t.run + "-types-" + t.client
	t.Must(t.Put(queue, "QueueDescription", Properties{"MaxDeliveryCount": 100}), "create queue")
	return queue
}

// Special are the types of go-amqp that have no name in Go.
type Special struct {
	UUID   func([16]byte) any
	Symbol func(string) any
}

// Typed is the value as Go has it; false if go-amqp cannot write that type.
func (r Row) Typed(special Special) (any, bool) {
	number := func(bits int) int64 { return must(strconv.ParseInt(r.Value, 10, bits)) }
	natural := func(bits int) uint64 { return must(strconv.ParseUint(r.Value, 10, bits)) }
	switch r.Type {
	case "string":
		return r.Value, true
	case "symbol":
		return special.Symbol(r.Value), true
	case "boolean":
		return must(strconv.ParseBool(r.Value)), true
	case "byte":
		return int8(number(8)), true
	case "short":
		return int16(number(16)), true
	case "int":
		return int32(number(32)), true
	case "long":
		return number(64), true
	case "ubyte":
		return uint8(natural(8)), true
	case "ushort":
		return uint16(natural(16)), true
	case "uint":
		return uint32(natural(32)), true
	case "ulong":
		return natural(64), true
	case "float":
		return float32(must(strconv.ParseFloat(r.Value, 32))), true
	case "double":
		return must(strconv.ParseFloat(r.Value, 64)), true
	case "timestamp":
		return must(time.Parse(time.RFC3339, r.Value)), true
	case "uuid":
		return special.UUID([16]byte(must(hex.DecodeString(strings.ReplaceAll(r.Value, "-", ""))))), true
	case "binary":
		return must(hex.DecodeString(r.Value)), true
	case "null":
		return nil, true
	}
	return nil, false
}

// Matches makes sure that a value is the row's, as closely as go-amqp shows it: symbols come as
// strings, described values can be looked at as text only.
func (r Row) Matches(t *Trial, got any) {
	special := Special{
		UUID:   func(id [16]byte) any { return id },
		Symbol: func(text string) any { return text },
	}
	want, known := r.Typed(special)
	switch {
	case !known:
		Equal(t, r.described(t), fmt.Sprint(got), r.Name)
	case r.Type == "timestamp":
		at, isTime := got.(time.Time)
		t.True(isTime && at.Equal(want.(time.Time)), fmt.Sprintf("%s is %v", r.Name, got))
	case r.Type == "uuid":
		value := reflect.ValueOf(got)
		sixteen := reflect.TypeOf([16]byte{})
		t.True(value.CanConvert(sixteen), fmt.Sprintf("%s is a uuid", r.Name))
		Equal(t, want, value.Convert(sixteen).Interface(), r.Name)
	default:
		Equal(t, want, got, r.Name)
	}
}

// described is a value of one of .NET's own types as go-amqp writes it for people to read.
func (r Row) described(t *Trial) string {
	var value any
	switch r.Type {
	case "com.microsoft:uri":
		value = r.Value
	case "com.microsoft:timespan":
		short := strings.ToLower(strings.TrimPrefix(r.Value, "PT"))
		value = must(time.ParseDuration(short)).Nanoseconds() / nanosecondsPerTick
	case "com.microsoft:datetime-offset":
		const epochTicks = 621_355_968_000_000_000
		value = must(time.Parse(time.RFC3339, r.Value)).UnixNano()/nanosecondsPerTick + epochTicks
	default:
		t.Fail("%s is of type %s, which is new to this client", r.Name, r.Type)
	}
	return fmt.Sprintf("DescribedType{descriptor: %s, value: %v}", r.Type, value)
}

// Duration is the row of type duration, in whole hours.
func (r Row) Duration() time.Duration {
	return must(time.ParseDuration(strings.ToLower(strings.TrimPrefix(r.Value, "PT"))))
}

// Names of rows, as the property `written` says them.
func Names(rows []Row) string {
	names := make([]string, len(rows))
	for index, row := range rows {
		names[index] = row.Name
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// Named are the rows with these names: those in the message that names them, and those apart.
func (t *Trial) Named(names string) (here, apart []Row) {
	wanted := strings.Split(names, ",")
	for _, row := range t.Types() {
		switch {
		case !slices.Contains(wanted, row.Name):
		case row.Apart:
			apart = append(apart, row)
		default:
			here = append(here, row)
		}
	}
	return here, apart
}

// Unreadable tells whether an error means that go-amqp cannot decode a type at all.
func Unreadable(err error) bool {
	return err != nil && strings.Contains(err.Error(), "not implemented")
}

func must[V any](value V, err error) V {
	if err != nil {
		panic(err)
	}
	return value
}
