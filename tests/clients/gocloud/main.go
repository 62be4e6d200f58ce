// The Go Cloud Development Kit, a portable API over many brokers, against a Peeklock broker.
//
// Topics and subscriptions are opened by URL, as its documentation says; the connection string comes
// from its own variable. Names and order of the scenarios are the same for every client.
package main

import "peeklock.test/trial"

const (
	notPortable      = "not part of the portable API"
	noAdministration = "the portable API creates nothing"
	noSessions       = "the portable API has no sessions"
)

func main() {
	trial.Run(trial.Client{
		Name:      "gocloud",
		Modules:   []string{"gocloud.dev", "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"},
		Scenarios: scenarios,
		ReadTypes: func(t *trial.Trial, _, _ string) { t.Skip("it receives from subscriptions only") },
	})
}

var scenarios = []trial.Scenario{
	{ID: "connect-emulator-string", Run: connectEmulatorString, Short: true},
	{ID: "connect-tls", Run: connectTLS, Short: true},
	{ID: "connect-tls-emulator-flag", Run: trial.Skip("with the emulator flag the SDK always connects in plain text")},
	{ID: "connect-websocket", Run: trial.Skip(notPortable)},
	{ID: "send-one", Run: sendOne, Short: true},
	{ID: "send-many", Run: sendMany},
	{ID: "send-batch", Run: trial.Skip("it sends messages one by one")},
	{ID: "full-batch", Run: trial.Skip("it sends messages one by one")},
	{ID: "send-1mb", Run: sendMegabyte},
	{ID: "receive-no-prefetch", Run: receiveNoPrefetch},
	{ID: "receive-prefetch", Run: trial.Skip(notPortable)},
	{ID: "processor", Run: trial.Skip(notPortable)},
	{ID: "complete", Run: complete, Short: true},
	{ID: "abandon-with-properties", Run: abandon},
	{ID: "defer-and-fetch", Run: trial.Skip(notPortable)},
	{ID: "dead-letter-and-read-back", Run: trial.Skip(notPortable), Short: true},
	{ID: "receive-and-delete", Run: receiveAndDelete},
	{ID: "peek", Run: trial.Skip(notPortable)},
	{ID: "purge-empty", Run: trial.Skip(notPortable)},
	{ID: "renew-lock", Run: trial.Skip(notPortable)},
	{ID: "concurrent-management", Run: trial.Skip(notPortable)},
	{ID: "auto-renew-lock", Run: trial.Skip(notPortable)},
	{ID: "auto-renew-ten", Run: trial.Skip(notPortable)},
	{ID: "lock-lost", Run: lockLost},
	{ID: "backup-settlement", Run: trial.Skip(notPortable)},
	{ID: "schedule", Run: trial.Skip(notPortable)},
	{ID: "cancel-scheduled", Run: trial.Skip(notPortable)},
	{ID: "session-named", Run: trial.Skip(noSessions), Short: true},
	{ID: "session-next-available", Run: trial.Skip(noSessions)},
	{ID: "session-two-holders", Run: trial.Skip(noSessions)},
	{ID: "session-state", Run: trial.Skip(noSessions)},
	{ID: "session-renew", Run: trial.Skip(noSessions)},
	{ID: "session-lock-lost", Run: trial.Skip(noSessions)},
	{ID: "session-none-available", Run: trial.Skip(noSessions)},
	{ID: "session-id-case", Run: trial.Skip(noSessions)},
	{ID: "session-deferred-after-renewals", Run: trial.Skip(noSessions)},
	{ID: "topic-true-filter", Run: topicTrueFilter},
	{ID: "topic-sql-filter", Run: topicSQLFilter, Short: true},
	{ID: "topic-correlation-filter", Run: topicCorrelationFilter},
	{ID: "rule-management", Run: trial.Skip(noAdministration)},
	{ID: "transaction-commit", Run: trial.Skip(notPortable)},
	{ID: "transaction-rollback", Run: trial.Skip(notPortable)},
	{ID: "transaction-rollback-then-settle", Run: trial.Skip(notPortable)},
	{ID: "transaction-other-connection", Run: trial.Skip(notPortable)},
	{ID: "admin-queue-crud", Run: trial.Skip(noAdministration), Short: true},
	{ID: "admin-topic-crud", Run: trial.Skip(noAdministration)},
	{ID: "admin-subscription-crud", Run: trial.Skip(noAdministration)},
	{ID: "admin-rule-crud", Run: trial.Skip(noAdministration)},
	{ID: "rule-value-precision", Run: trial.Skip(noAdministration)},
	{ID: "admin-runtime-properties", Run: trial.Skip(noAdministration)},
	{ID: "duplicate-detection", Run: duplicateDetection},
	{ID: "time-to-live", Run: timeToLive},
	{ID: "forwarding", Run: trial.Skip("it receives from subscriptions only")},
	{ID: "forwarding-round-trip", Run: trial.Skip("it receives from subscriptions only")},
	{ID: "properties-round-trip", Run: trial.Skip("metadata are texts only")},
	{ID: "error-not-found", Run: errorNotFound},
	{ID: "error-not-found-operations", Run: trial.Skip("it only sends and receives, see error-not-found")},
	{ID: "error-unauthorized", Run: errorUnauthorized},
	{ID: "strict-claims", Run: trial.Skip("it takes one connection string for everything")},
	{ID: "error-quota", Run: errorQuota},
	{ID: "error-too-large", Run: errorTooLarge},
	{ID: "error-session-held", Run: trial.Skip(noSessions)},
	{ID: "reconnect-after-restart", Run: reconnectAfterRestart},
	{ID: "clean-close", Run: trial.Skip("it leaves connections to the SDK and never closes them")},
}
