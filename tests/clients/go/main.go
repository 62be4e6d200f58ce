// The official Go SDK against a Peeklock broker, used as its documentation says.
//
// Names and order of the scenarios are the same for every client.
package main

import "peeklock.test/trial"

var modules = []string{
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus",
	"github.com/Azure/go-amqp",
}

const noTransactions = "the SDK has no transactions"

func main() {
	trial.Run(trial.Client{
		Name: "go", Modules: modules, Scenarios: scenarios, Faults: faults, ReadTypes: readTypes,
	})
}

var scenarios = []trial.Scenario{
	{ID: "connect-emulator-string", Run: connectEmulatorString, Short: true},
	{ID: "connect-tls", Run: connectTLS, Short: true},
	{ID: "connect-tls-emulator-flag", Run: trial.Skip("with the emulator flag the SDK always connects in plain text")},
	{ID: "connect-websocket", Run: connectWebSocket},
	{ID: "send-one", Run: sendOne, Short: true},
	{ID: "send-many", Run: sendMany},
	{ID: "send-batch", Run: sendBatch},
	{ID: "full-batch", Run: fullBatch},
	{ID: "send-1mb", Run: sendMegabyte},
	{ID: "receive-no-prefetch", Run: receiveNoPrefetch},
	{ID: "receive-prefetch", Run: trial.Skip("the SDK does not prefetch")},
	{ID: "processor", Run: trial.Skip("the SDK has no processor")},
	{ID: "complete", Run: complete, Short: true},
	{ID: "abandon-with-properties", Run: abandonWithProperties},
	{ID: "defer-and-fetch", Run: deferAndFetch},
	{ID: "dead-letter-and-read-back", Run: deadLetterAndReadBack, Short: true},
	{ID: "receive-and-delete", Run: receiveAndDelete},
	{ID: "peek", Run: peek},
	{ID: "purge-empty", Run: trial.Skip("the SDK deletes no messages")},
	{ID: "renew-lock", Run: renewLock},
	{ID: "concurrent-management", Run: concurrentManagement},
	{ID: "auto-renew-lock", Run: trial.Skip("the SDK leaves renewing to its user")},
	{ID: "auto-renew-ten", Run: trial.Skip("the SDK leaves renewing to its user")},
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
	{ID: "rule-management", Run: trial.Skip("the SDK manages rules with its admin client only")},
	{ID: "transaction-commit", Run: trial.Skip(noTransactions)},
	{ID: "transaction-rollback", Run: trial.Skip(noTransactions)},
	{ID: "transaction-rollback-then-settle", Run: trial.Skip(noTransactions)},
	{ID: "transaction-other-connection", Run: trial.Skip(noTransactions)},
	{ID: "admin-queue-crud", Run: adminQueue, Short: true},
	{ID: "admin-topic-crud", Run: adminTopic},
	{ID: "admin-subscription-crud", Run: adminSubscription},
	{ID: "admin-rule-crud", Run: adminRule},
	{ID: "rule-value-precision", Run: ruleValuePrecision},
	{ID: "admin-runtime-properties", Run: adminRuntimeProperties},
	{ID: "duplicate-detection", Run: duplicateDetection},
	{ID: "time-to-live", Run: timeToLive},
	{ID: "forwarding", Run: forwarding},
	{ID: "forwarding-round-trip", Run: forwardingRoundTrip},
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
