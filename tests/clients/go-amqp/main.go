// go-amqp, an AMQP 1.0 client that knows nothing of Service Bus, against a Peeklock broker.
//
// What Service Bus adds to AMQP is said in messages to an entity's $management node. Names and order
// of the scenarios are the same for every client.
package main

import "peeklock.test/trial"

var modules = []string{"github.com/Azure/go-amqp"}

const (
	noAdministration = "an AMQP client has no administration API"
	noTransactions   = "go-amqp has no transactions"
)

func main() {
	trial.Run(trial.Client{Name: "go-amqp", Modules: modules, Scenarios: scenarios, ReadTypes: readTypes})
}

var scenarios = []trial.Scenario{
	{ID: "connect-emulator-string", Run: connectPlain, Short: true},
	{ID: "connect-tls", Run: connectTLS, Short: true},
	{ID: "connect-tls-emulator-flag", Run: trial.Skip("an AMQP client has addresses, not connection strings")},
	{ID: "connect-websocket", Run: connectWebSocket},
	{ID: "send-one", Run: sendOne, Short: true},
	{ID: "send-many", Run: sendMany},
	{ID: "send-batch", Run: sendBatch},
	{ID: "full-batch", Run: fullBatch},
	{ID: "send-1mb", Run: sendMegabyte},
	{ID: "receive-no-prefetch", Run: receiveNoPrefetch},
	{ID: "receive-prefetch", Run: receivePrefetch},
	{ID: "processor", Run: trial.Skip("go-amqp has no message pump")},
	{ID: "complete", Run: complete, Short: true},
	{ID: "abandon-with-properties", Run: abandonWithProperties},
	{ID: "defer-and-fetch", Run: deferAndFetch},
	{ID: "dead-letter-and-read-back", Run: deadLetterAndReadBack, Short: true},
	{ID: "receive-and-delete", Run: receiveAndDelete},
	{ID: "peek", Run: peek},
	{ID: "purge-empty", Run: purgeEmpty},
	{ID: "renew-lock", Run: renewLock},
	{ID: "concurrent-management", Run: concurrentManagement},
	{ID: "auto-renew-lock", Run: trial.Skip("AMQP knows no locks")},
	{ID: "auto-renew-ten", Run: trial.Skip("AMQP knows no locks")},
	{ID: "lock-lost", Run: lockLost},
	{ID: "backup-settlement", Run: backupSettlement},
	{ID: "schedule", Run: schedule},
	{ID: "cancel-scheduled", Run: cancelScheduled},
	{ID: "session-named", Run: sessionNamed, Short: true},
	{ID: "session-next-available", Run: sessionNextAvailable},
	{ID: "session-two-holders", Run: sessionTwoHolders},
	{ID: "session-state", Run: sessionState},
	{ID: "session-renew", Run: sessionRenew},
	{ID: "session-lock-lost", Run: sessionLockLost},
	{ID: "session-none-available", Run: sessionNoneAvailable},
	{ID: "session-id-case", Run: sessionIDCase},
	{ID: "session-deferred-after-renewals", Run: sessionDeferredAfterRenewals},
	{ID: "topic-true-filter", Run: topicTrueFilter},
	{ID: "topic-sql-filter", Run: topicSQLFilter, Short: true},
	{ID: "topic-correlation-filter", Run: topicCorrelationFilter},
	{ID: "rule-management", Run: ruleManagement},
	{ID: "transaction-commit", Run: trial.Skip(noTransactions)},
	{ID: "transaction-rollback", Run: trial.Skip(noTransactions)},
	{ID: "transaction-rollback-then-settle", Run: trial.Skip(noTransactions)},
	{ID: "transaction-other-connection", Run: trial.Skip(noTransactions)},
	{ID: "admin-queue-crud", Run: trial.Skip(noAdministration), Short: true},
	{ID: "admin-topic-crud", Run: trial.Skip(noAdministration)},
	{ID: "admin-subscription-crud", Run: trial.Skip(noAdministration)},
	{ID: "admin-rule-crud", Run: trial.Skip(noAdministration)},
	{ID: "rule-value-precision", Run: trial.Skip(noAdministration)},
	{ID: "admin-runtime-properties", Run: trial.Skip(noAdministration)},
	{ID: "duplicate-detection", Run: duplicateDetection},
	{ID: "time-to-live", Run: timeToLive},
	{ID: "forwarding", Run: forwarding},
	{ID: "forwarding-round-trip", Run: trial.Skip(noAdministration)},
	{ID: "properties-round-trip", Run: propertiesRoundTrip},
	{ID: "error-not-found", Run: errorNotFound},
	{ID: "error-not-found-operations", Run: errorNotFoundOperations},
	{ID: "error-unauthorized", Run: errorUnauthorized},
	{ID: "strict-claims", Run: strictClaims},
	{ID: "error-quota", Run: errorQuota},
	{ID: "error-too-large", Run: errorTooLarge},
	{ID: "error-session-held", Run: errorSessionHeld},
	{ID: "reconnect-after-restart", Run: reconnectAfterRestart},
	{ID: "clean-close", Run: cleanClose},
}
