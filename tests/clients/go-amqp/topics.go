package main

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/Azure/go-amqp"

	"peeklock.test/trial"
)

func with(body string, properties map[string]any) *amqp.Message {
	message := text(body)
	message.ApplicationProperties = properties
	return message
}

func topicTrueFilter(t *trial.Trial) {
	session, topic := connect(t), t.Topic(nil)
	t.Subscription(topic, "one", nil)
	t.Subscription(topic, "two", nil)
	send(t, session, topic, texts("a", "b")...)
	for _, name := range []string{"one", "two"} {
		receiver := newReceiver(t, session, topic+"/Subscriptions/"+name, nil)
		trial.Equal(t, []string{"a", "b"}, bodies(take(t, receiver, 2)), name)
	}
}

func topicSQLFilter(t *trial.Trial) {
	session, topic := connect(t), t.Topic(nil)
	t.Filtered(topic, "red",
		`<Filter i:type="SqlFilter"><SqlExpression>color = 'red' AND size &gt; 3</SqlExpression></Filter>`,
		`<Action i:type="SqlRuleAction"><SqlExpression>SET size = size + 1; REMOVE color</SqlExpression></Action>`)
	send(t, session, topic,
		with("big red", map[string]any{"color": "red", "size": int64(4)}),
		with("small red", map[string]any{"color": "red", "size": int64(3)}))
	receiver := newReceiver(t, session, topic+"/Subscriptions/red", nil)
	message := take(t, receiver, 1)[0]
	trial.Equal(t, "big red", string(message.GetData()), "what matches")
	_, colored := message.ApplicationProperties["color"]
	trial.Equal(t, any(int64(5)), message.ApplicationProperties["size"], "what the action set")
	t.True(!colored, "what the action removed is gone")
	nothing(t, receiver)
}

func topicCorrelationFilter(t *trial.Trial) {
	session, topic := connect(t), t.Topic(nil)
	t.Filtered(topic, "mine", `<Filter i:type="CorrelationFilter"><CorrelationId>42</CorrelationId></Filter>`, "")
	mine, yours := text("mine"), text("yours")
	mine.Properties = &amqp.MessageProperties{CorrelationID: "42"}
	yours.Properties = &amqp.MessageProperties{CorrelationID: "43"}
	send(t, session, topic, mine, yours)
	receiver := newReceiver(t, session, topic+"/Subscriptions/mine", nil)
	trial.Equal(t, []string{"mine"}, bodies(take(t, receiver, 1)), "what matches")
	nothing(t, receiver)
}

func ruleManagement(t *trial.Trial) {
	session, topic := connect(t), t.Topic(nil)
	t.Subscription(topic, "sub", nil)
	node := manage(t, session, topic+"/Subscriptions/sub")
	node.do(t, "add-rule", map[string]any{
		"rule-name":        "big",
		"rule-description": map[string]any{"sql-filter": map[string]any{"expression": "size > 3"}},
	})
	node.do(t, "remove-rule", map[string]any{"rule-name": "$Default"})
	listed := node.do(t, "enumerate-rules", map[string]any{"skip": int32(0), "top": int32(10)})["rules"].([]any)
	trial.Equal(t, 1, len(listed), "rules")
	const sqlFilterCode = 0x1370000006
	rule := fmt.Sprint(listed[0].(map[string]any)["rule-description"])
	t.True(strings.Contains(rule, "size > 3"), "its text is in "+rule)
	t.True(strings.Contains(rule, fmt.Sprint(sqlFilterCode)), "its kind is in "+rule)
	send(t, session, topic, with("small", map[string]any{"size": int64(1)}), with("big", map[string]any{"size": int64(9)}))
	receiver := newReceiver(t, session, topic+"/Subscriptions/sub", nil)
	trial.Equal(t, []string{"big"}, bodies(take(t, receiver, 1)), "what matches")
	status, _ := node.ask(t, "remove-rule", map[string]any{"rule-name": "none"})
	trial.Equal(t, http.StatusNotFound, int(status), "removing what is not there")
}
