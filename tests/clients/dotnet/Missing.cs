using System.Diagnostics;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

namespace Peeklock;

/// <summary>Every operation on entities that do not exist.</summary>
public static class Missing
{
    private static readonly TimeSpan AtOnce = TimeSpan.FromSeconds(5);

    public static async Task Operations(Broker broker)
    {
        var nowhere = broker.Name("nowhere");
        var topic = await broker.TopicAsync();
        var due = (await broker.NowAsync()).AddHours(1);
        await using var client = Moves.Connect(broker);
        await using var sender = client.CreateSender(nowhere);
        await using var receiver = client.CreateReceiver(nowhere);
        await using var subscriber = client.CreateReceiver(topic, "nowhere");
        await using var rules = client.CreateRuleManager(topic, "nowhere");
        await using var processor = client.CreateProcessor(nowhere);
        var admin = new ServiceBusAdministrationClient(broker.AdminConnectionString);
        var message = new ServiceBusMessage("x");
        (string Doing, Func<Task> Act)[] operations =
        [
            ("send", () => sender.SendMessageAsync(message)),
            ("schedule", () => sender.ScheduleMessageAsync(message, due)),
            ("cancel", () => sender.CancelScheduledMessageAsync(1)),
            ("make a batch", async () => await sender.CreateMessageBatchAsync()),
            ("receive", () => receiver.ReceiveMessageAsync(Moves.Nothing)),
            ("peek", () => receiver.PeekMessageAsync()),
            ("fetch", () => receiver.ReceiveDeferredMessageAsync(1)),
            ("receive from a subscription", () => subscriber.ReceiveMessageAsync(Moves.Nothing)),
            ("peek in a subscription", () => subscriber.PeekMessageAsync()),
            ("accept a session", () => client.AcceptSessionAsync(nowhere, "s")),
            ("accept any session", () => client.AcceptNextSessionAsync(nowhere)),
            ("list rules", async () => await rules.GetRulesAsync().GetAsyncEnumerator().MoveNextAsync()),
            ("create a rule", () => rules.CreateRuleAsync("rule", new SqlRuleFilter("a = 1"))),
            ("delete a rule", () => rules.DeleteRuleAsync("rule")),
            ("get a queue", () => admin.GetQueueAsync(nowhere)),
            ("count a queue", () => admin.GetQueueRuntimePropertiesAsync(nowhere)),
            ("delete a queue", () => admin.DeleteQueueAsync(nowhere)),
            ("get a topic", () => admin.GetTopicAsync(nowhere)),
            ("delete a topic", () => admin.DeleteTopicAsync(nowhere)),
            ("get a subscription", () => admin.GetSubscriptionAsync(topic, nowhere)),
            ("create a subscription", () => admin.CreateSubscriptionAsync(nowhere, "sub")),
            ("get a rule", () => admin.GetRuleAsync(topic, nowhere, "rule")),
            ("create a rule over HTTP", () => admin.CreateRuleAsync(topic, nowhere, new CreateRuleOptions("rule"))),
        ];
        var wrong = new List<string>();
        foreach (var (doing, act) in operations)
        {
            var watch = Stopwatch.StartNew();
            try
            {
                await act();
                wrong.Add($"{doing}: not refused");
            }
            catch (ServiceBusException error) when (error.Reason == ServiceBusFailureReason.MessagingEntityNotFound)
            {
                if (watch.Elapsed > AtOnce)
                {
                    wrong.Add($"{doing}: after {watch.Elapsed}");
                }
            }
            catch (Exception error)
            {
                wrong.Add($"{doing}: {error.GetType().Name} {error.Message}");
            }
        }

        Expect.Same([], wrong, "operations that were not refused as not found");
    }
}
