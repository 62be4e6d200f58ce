// The official .NET SDK against a Peeklock broker, used as its documentation says.
//
// Without arguments every scenario runs; `read-types QUEUE WRITER` reads what another client wrote.
// Names and order of the scenarios are the same for every client. Where there is no .NET to run this,
// tests/protocol/test_dotnet_habits.py says the same things frame by frame.

using System.Text.Json;
using Azure.Messaging.ServiceBus;

namespace Peeklock;

/// <summary>The client has no way to do it.</summary>
public sealed class SkippedException(string reason) : Exception(reason);

public static class Expect
{
    public static void That(bool holds, string what)
    {
        if (!holds)
        {
            throw new InvalidOperationException($"not true: {what}");
        }
    }

    public static void Equal<T>(T expected, T found, string what) =>
        That(EqualityComparer<T>.Default.Equals(expected, found), $"{what}: expected {expected}, found {found}");

    public static void Same(IEnumerable<string> expected, IEnumerable<string> found, string what) =>
        Equal(string.Join(" ", expected), string.Join(" ", found), what);

    public static async Task<ServiceBusException> FailsAsync(
        ServiceBusFailureReason reason, Func<Task> act, string what)
    {
        try
        {
            await act();
        }
        catch (ServiceBusException error) when (error.Reason == reason)
        {
            return error;
        }

        throw new InvalidOperationException($"{what} did not fail with {reason}");
    }
}

public static class Program
{
    private static readonly (string Name, bool Short, Func<Broker, Task> Run)[] Scenarios =
    [
        ("connect-emulator-string", true, Connecting.EmulatorString),
        ("connect-tls", true, Connecting.Tls),
        ("connect-tls-emulator-flag", false, Skip("with the emulator flag the SDK always connects in plain text")),
        ("connect-websocket", false, Connecting.WebSocket),
        ("send-one", true, Sending.One),
        ("send-many", false, Sending.Many),
        ("send-batch", false, Sending.Batch),
        ("full-batch", false, Claims.FullBatch),
        ("send-1mb", false, Sending.Megabyte),
        ("receive-no-prefetch", false, Receiving.NoPrefetch),
        ("receive-prefetch", false, Receiving.Prefetch),
        ("processor", false, Receiving.Processor),
        ("complete", true, Settling.Complete),
        ("abandon-with-properties", false, Settling.AbandonWithProperties),
        ("defer-and-fetch", false, Settling.DeferAndFetch),
        ("dead-letter-and-read-back", true, Settling.DeadLetterAndReadBack),
        ("receive-and-delete", false, Receiving.ReceiveAndDelete),
        ("peek", false, Receiving.Peek),
        ("purge-empty", false, Skip("the SDK keeps it to itself")),
        ("renew-lock", false, Locks.Renew),
        ("concurrent-management", false, Locks.ConcurrentManagement),
        ("auto-renew-lock", false, Locks.AutoRenew),
        ("auto-renew-ten", false, Locks.AutoRenewTen),
        ("lock-lost", false, Locks.Lost),
        ("backup-settlement", false, Locks.BackupSettlement),
        ("schedule", false, Features.Schedule),
        ("cancel-scheduled", false, Features.CancelScheduled),
        ("session-named", true, Sessions.Named),
        ("session-next-available", false, Sessions.NextAvailable),
        ("session-two-holders", false, Sessions.TwoHolders),
        ("session-state", false, Sessions.State),
        ("session-renew", false, Sessions.Renew),
        ("session-lock-lost", false, Sessions.LockLost),
        ("session-none-available", false, Sessions.NoneAvailable),
        ("session-id-case", false, Sessions.IdCase),
        ("session-deferred-after-renewals", false, Sessions.DeferredAfterRenewals),
        ("topic-true-filter", false, Topics.TrueFilter),
        ("topic-sql-filter", true, Topics.SqlFilter),
        ("topic-correlation-filter", false, Topics.CorrelationFilter),
        ("rule-management", false, Topics.RuleManagement),
        ("transaction-commit", false, broker => Transactions.Discharge(broker, commit: true)),
        ("transaction-rollback", false, broker => Transactions.Discharge(broker, commit: false)),
        ("transaction-rollback-then-settle", false, Transactions.RollbackThenSettle),
        ("transaction-other-connection", false, Transactions.OtherConnection),
        ("admin-queue-crud", true, Administration.Queue),
        ("admin-topic-crud", false, Administration.Topic),
        ("admin-subscription-crud", false, Administration.Subscription),
        ("admin-rule-crud", false, Administration.Rule),
        ("rule-value-precision", false, Administration.RuleValuePrecision),
        ("admin-runtime-properties", false, Administration.RuntimeProperties),
        ("duplicate-detection", false, Features.DuplicateDetection),
        ("time-to-live", false, Features.TimeToLive),
        ("forwarding", false, Features.Forwarding),
        ("forwarding-round-trip", false, Features.ForwardingRoundTrip),
        ("properties-round-trip", false, Types.RoundTrip),
        ("error-not-found", false, Refusals.NotFound),
        ("error-not-found-operations", false, Missing.Operations),
        ("error-unauthorized", false, Refusals.Unauthorized),
        ("strict-claims", false, Claims.Strict),
        ("error-quota", false, Refusals.Quota),
        ("error-too-large", false, Refusals.TooLarge),
        ("error-session-held", false, Sessions.Held),
        ("reconnect-after-restart", false, Connecting.ReconnectAfterRestart),
        ("clean-close", false, Connecting.CleanClose),
    ];

    public static async Task Main(string[] arguments)
    {
        var version = typeof(ServiceBusClient).Assembly.GetName().Version!.ToString(3);
        Say(new { versions = new Dictionary<string, string> { ["Azure.Messaging.ServiceBus"] = version } });
        var broker = new Broker();
        if (arguments is ["read-types", var queue, _])
        {
            await ReportAsync("read-types", _ => Types.Read(broker, queue), broker);
            return;
        }

        var isShort = Environment.GetEnvironmentVariable("PEEKLOCK_SHORT") == "1";
        foreach (var (name, inShortList, run) in Scenarios)
        {
            if (inShortList || !isShort)
            {
                await ReportAsync(name, run, broker);
            }
        }
    }

    private static Func<Broker, Task> Skip(string reason) => _ => throw new SkippedException(reason);

    private static async Task ReportAsync(string scenario, Func<Broker, Task> run, Broker broker)
    {
        var (outcome, detail) = ("passed", "");
        try
        {
            await run(broker).WaitAsync(TimeSpan.FromSeconds(120));
        }
        catch (SkippedException reason)
        {
            (outcome, detail) = ("skipped", reason.Message);
        }
        catch (Exception error)
        {
            (outcome, detail) = ("failed", error.ToString());
        }

        Say(new { scenario, outcome, detail });
    }

    private static void Say(object line) => Console.WriteLine(JsonSerializer.Serialize(line));
}
