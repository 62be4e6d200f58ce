using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

namespace Peeklock;

/// <summary>A broker that is strict: keys of each claim, and batches filled to its limits.</summary>
public static class Claims
{
    public static async Task Strict(Broker broker)
    {
        var queue = Broker.StrictQueue;
        await using (var client = Moves.Connect(Broker.Strict("SEND")))
        {
            await Moves.SendAsync(client, queue, "sent");
            await using var receiver = client.CreateReceiver(queue);
            await RefusedAsync(() => receiver.ReceiveMessageAsync(Moves.Nothing), "receiving with a key for sending");
            await RefusedAsync(() => receiver.PeekMessageAsync(), "peeking with a key for sending");
        }

        await using (var client = Moves.Connect(Broker.Strict("LISTEN")))
        {
            await using var sender = client.CreateSender(queue);
            var message = new ServiceBusMessage("x");
            var later = DateTimeOffset.UtcNow.AddDays(1);
            await RefusedAsync(() => sender.SendMessageAsync(message), "sending with a key for listening");
            await RefusedAsync(() => sender.ScheduleMessageAsync(message, later), "scheduling with a key for listening");
            await using var receiver = client.CreateReceiver(queue);
            Expect.Equal("sent", (await receiver.PeekMessageAsync()).Body.ToString(), "what is peeked");
            Expect.Same(["sent"], await Moves.TakeAsync(receiver, 1), "what is received");
        }

        foreach (var claim in new[] { "SEND", "LISTEN" })
        {
            var refused = new ServiceBusAdministrationClient(Broker.Strict(claim));
            await RefusedAsync(() => refused.GetQueueAsync(queue), $"getting a queue with a key to {claim}");
            await RefusedAsync(() => refused.CreateQueueAsync(broker.Name("refused")), $"creating one with a key to {claim}");
        }

        var admin = new ServiceBusAdministrationClient(Broker.Strict("MANAGE"));
        var made = broker.Name("managed");
        await admin.CreateQueueAsync(made);
        await using (var client = Moves.Connect(Broker.Strict("MANAGE")))
        {
            await Moves.SendAsync(client, made, "managed");
            await using var receiver = client.CreateReceiver(made);
            Expect.Same(["managed"], await Moves.TakeAsync(receiver, 1), "what is received");
        }

        await admin.DeleteQueueAsync(made);
    }

    /// <summary>Smaller and smaller messages are added, so that hardly a byte is left.</summary>
    public static async Task FullBatch(Broker broker)
    {
        await using var client = Moves.Connect(Broker.Strict("MANAGE"));
        await using var sender = client.CreateSender(Broker.StrictQueue);
        using var batch = await sender.CreateMessageBatchAsync();
        foreach (var size in new[] { 5000, 500, 50, 5, 0 })
        {
            while (batch.TryAddMessage(new ServiceBusMessage(new byte[size])))
            {
            }
        }

        await sender.SendMessagesAsync(batch);
        await using var receiver = client.CreateReceiver(Broker.StrictQueue);
        Expect.Equal(batch.Count, (await Moves.TakeAsync(receiver, batch.Count)).Count, "messages of the batch");
    }

    private static async Task RefusedAsync(Func<Task> act, string what)
    {
        try
        {
            await act();
        }
        catch (UnauthorizedAccessException)
        {
            return;
        }

        throw new InvalidOperationException($"{what} was not refused");
    }
}
