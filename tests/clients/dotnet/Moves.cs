using Azure.Messaging.ServiceBus;

namespace Peeklock;

/// <summary>Small moves that many scenarios make.</summary>
public static class Moves
{
    /// <summary>Long enough for what must come.</summary>
    public static readonly TimeSpan Wait = TimeSpan.FromSeconds(10);

    /// <summary>How long to look for what must not come.</summary>
    public static readonly TimeSpan Nothing = TimeSpan.FromMilliseconds(500);

    public static ServiceBusClient Connect(Broker broker, Action<ServiceBusClientOptions>? change = null) =>
        Connect(broker.ConnectionString, change);

    public static ServiceBusClient Connect(string connectionString, Action<ServiceBusClientOptions>? change = null)
    {
        var options = new ServiceBusClientOptions
        {
            RetryOptions = new ServiceBusRetryOptions { MaxRetries = 0, TryTimeout = Wait },
        };
        change?.Invoke(options);
        return new ServiceBusClient(connectionString, options);
    }

    public static async Task SendAsync(ServiceBusClient client, string queue, params string[] texts) =>
        await SendMessagesAsync(client, queue, texts.Select(text => new ServiceBusMessage(text)));

    public static async Task SendMessagesAsync(
        ServiceBusClient client, string queue, IEnumerable<ServiceBusMessage> messages)
    {
        await using var sender = client.CreateSender(queue);
        await sender.SendMessagesAsync(messages);
    }

    /// <summary>Exactly so many, however many calls it takes.</summary>
    public static async Task<List<ServiceBusReceivedMessage>> ReceiveAsync(ServiceBusReceiver receiver, int count)
    {
        var received = new List<ServiceBusReceivedMessage>();
        while (received.Count < count)
        {
            var more = await receiver.ReceiveMessagesAsync(count - received.Count, Wait);
            Expect.That(more.Count > 0, $"only {received.Count} of {count} messages came");
            received.AddRange(more);
        }

        return received;
    }

    public static async Task<ServiceBusReceivedMessage> ReceiveOneAsync(ServiceBusReceiver receiver) =>
        (await ReceiveAsync(receiver, 1))[0];

    /// <summary>
    /// The bodies of so many messages, each completed as it comes: with a prefetch count the client
    /// asks for more only when something is settled.
    /// </summary>
    public static async Task<List<string>> TakeAsync(ServiceBusReceiver receiver, int count)
    {
        var bodies = new List<string>();
        while (bodies.Count < count)
        {
            var more = await receiver.ReceiveMessagesAsync(count - bodies.Count, Wait);
            Expect.That(more.Count > 0, $"only {bodies.Count} of {count} messages came");
            foreach (var message in more)
            {
                await receiver.CompleteMessageAsync(message);
                bodies.Add(message.Body.ToString());
            }
        }

        return bodies;
    }

    public static async Task ExpectNothingAsync(ServiceBusReceiver receiver) =>
        Expect.Equal(0, (await receiver.ReceiveMessagesAsync(1, Nothing)).Count, "messages");

    public static ServiceBusMessage InSession(string sessionId, string text) =>
        new(text) { SessionId = sessionId };

    public static ServiceBusReceiver DeadLetters(ServiceBusClient client, string queue) =>
        client.CreateReceiver(queue, new ServiceBusReceiverOptions { SubQueue = SubQueue.DeadLetter });
}
