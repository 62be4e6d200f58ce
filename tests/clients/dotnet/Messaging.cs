using Azure.Messaging.ServiceBus;

namespace Peeklock;

public static class Connecting
{
    private static readonly TimeSpan ClosingLimit = TimeSpan.FromSeconds(3);

    public static async Task EmulatorString(Broker broker)
    {
        await using var client = new ServiceBusClient(broker.ConnectionString);
        await ThereAndBack(client, await broker.QueueAsync());
    }

    public static Task Tls(Broker broker) => Secure(broker, ServiceBusTransportType.AmqpTcp);

    public static Task WebSocket(Broker broker) => Secure(broker, ServiceBusTransportType.AmqpWebSockets);

    public static async Task ReconnectAfterRestart(Broker broker)
    {
        var queue = await broker.QueueAsync();
        await using var client = new ServiceBusClient(broker.ConnectionString);
        await using var sender = client.CreateSender(queue);
        await using var receiver = client.CreateReceiver(queue);
        await sender.SendMessageAsync(new ServiceBusMessage("before"));
        Expect.Same(["before"], await Moves.TakeAsync(receiver, 1), "before the restart");
        await sender.SendMessageAsync(new ServiceBusMessage("kept"));
        broker.Restart();
        await sender.SendMessageAsync(new ServiceBusMessage("after"));
        Expect.Same(["kept", "after"], await Moves.TakeAsync(receiver, 2), "after the restart");
    }

    public static async Task CleanClose(Broker broker)
    {
        var queue = await broker.QueueAsync();
        var before = await broker.ConnectionsAsync();
        var client = Moves.Connect(broker);
        await Moves.SendAsync(client, queue, "a", "b");
        var receiver = client.CreateReceiver(queue, new ServiceBusReceiverOptions { PrefetchCount = 10 });
        await Moves.TakeAsync(receiver, 1);
        var began = DateTime.UtcNow;
        await client.DisposeAsync();
        Expect.That(DateTime.UtcNow - began < ClosingLimit, "closing takes no time");
        // The SDK does not wait until its socket is closed.
        while (await broker.ConnectionsAsync() > before && DateTime.UtcNow - began < ClosingLimit)
        {
            await Task.Delay(TimeSpan.FromMilliseconds(10));
        }
        Expect.Equal(before, await broker.ConnectionsAsync(), "connections left");
    }

    /// <summary>The authority comes through SSL_CERT_FILE; the port through the custom endpoint.</summary>
    private static async Task Secure(Broker broker, ServiceBusTransportType transport)
    {
        await using var client = new ServiceBusClient(broker.TlsConnectionString, new ServiceBusClientOptions
        {
            TransportType = transport,
            CustomEndpointAddress = new Uri($"amqps://localhost:{broker.AmqpPort}"),
        });
        await ThereAndBack(client, await broker.QueueAsync());
    }

    private static async Task ThereAndBack(ServiceBusClient client, string queue)
    {
        await Moves.SendAsync(client, queue, "hello");
        await using var receiver = client.CreateReceiver(queue);
        Expect.Same(["hello"], await Moves.TakeAsync(receiver, 1), "what came");
    }
}

public static class Sending
{
    public static async Task One(Broker broker)
    {
        var queue = await broker.QueueAsync();
        await using var client = Moves.Connect(broker);
        await using var sender = client.CreateSender(queue);
        await sender.SendMessageAsync(new ServiceBusMessage("one"));
        await using var receiver = client.CreateReceiver(queue);
        Expect.Same(["one"], await Moves.TakeAsync(receiver, 1), "what came");
    }

    public static async Task Many(Broker broker)
    {
        var queue = await broker.QueueAsync();
        var texts = Enumerable.Range(0, 300).Select(number => number.ToString()).ToArray();
        await using var client = Moves.Connect(broker);
        await using var sender = client.CreateSender(queue);
        await sender.SendMessageAsync(new ServiceBusMessage(texts[0]));
        await Task.WhenAll(texts.Skip(1).Select(text => sender.SendMessageAsync(new ServiceBusMessage(text))));
        await using var receiver = client.CreateReceiver(queue, new ServiceBusReceiverOptions { PrefetchCount = 100 });
        Expect.Same(texts, await Moves.TakeAsync(receiver, texts.Length), "what came, in order");
    }

    public static async Task Batch(Broker broker)
    {
        var queue = await broker.QueueAsync();
        await using var client = Moves.Connect(broker);
        await using var sender = client.CreateSender(queue);
        using var batch = await sender.CreateMessageBatchAsync();
        while (batch.TryAddMessage(new ServiceBusMessage(new string('x', 5000))))
        {
        }

        Expect.That(batch.Count > 10, "a batch holds many");
        await sender.SendMessagesAsync(batch);
        await sender.SendMessagesAsync([new ServiceBusMessage("a"), new ServiceBusMessage("b")]);
        await using var receiver = client.CreateReceiver(queue, new ServiceBusReceiverOptions { PrefetchCount = 100 });
        var found = await Moves.TakeAsync(receiver, batch.Count + 2);
        Expect.Same(["a", "b"], found.Skip(batch.Count), "the last two");
    }

    public static async Task Megabyte(Broker broker)
    {
        var queue = await broker.QueueAsync(("MaxMessageSizeInKilobytes", 4096));
        var body = new byte[1 << 20];
        new Random(1).NextBytes(body);
        await using var client = Moves.Connect(broker);
        await Moves.SendMessagesAsync(client, queue, [new ServiceBusMessage(body)]);
        await using var receiver = client.CreateReceiver(queue);
        var message = await Moves.ReceiveOneAsync(receiver);
        Expect.That(body.AsSpan().SequenceEqual(message.Body.ToArray()), "the body is unharmed");
        await receiver.CompleteMessageAsync(message);
    }
}

public static class Receiving
{
    public static async Task NoPrefetch(Broker broker)
    {
        var queue = await broker.QueueAsync();
        await using var client = Moves.Connect(broker);
        await Moves.SendAsync(client, queue, "a", "b", "c");
        await using var receiver = client.CreateReceiver(queue);
        Expect.Same(["a", "b"], await Moves.TakeAsync(receiver, 2), "two");
        Expect.Same(["c"], await Moves.TakeAsync(receiver, 1), "one");
        await Moves.ExpectNothingAsync(receiver);
    }

    public static async Task Prefetch(Broker broker)
    {
        var queue = await broker.QueueAsync();
        var texts = Enumerable.Range(0, 200).Select(number => number.ToString()).ToArray();
        await using var client = Moves.Connect(broker);
        await Moves.SendAsync(client, queue, texts);
        await using var receiver = client.CreateReceiver(queue, new ServiceBusReceiverOptions { PrefetchCount = 50 });
        Expect.Same(texts, await Moves.TakeAsync(receiver, texts.Length), "each once");
    }

    public static async Task Processor(Broker broker)
    {
        var queue = await broker.QueueAsync();
        await using var client = Moves.Connect(broker);
        await Moves.SendAsync(client, queue, Enumerable.Range(0, 50).Select(number => number.ToString()).ToArray());
        var found = 0;
        var done = new TaskCompletionSource();
        await using var processor = client.CreateProcessor(queue, new ServiceBusProcessorOptions { MaxConcurrentCalls = 4 });
        processor.ProcessMessageAsync += _ =>
        {
            if (Interlocked.Increment(ref found) == 50)
            {
                done.TrySetResult();
            }

            return Task.CompletedTask;
        };
        processor.ProcessErrorAsync += error =>
        {
            done.TrySetException(error.Exception);
            return Task.CompletedTask;
        };
        await processor.StartProcessingAsync();
        await done.Task.WaitAsync(TimeSpan.FromSeconds(30));
        await processor.StopProcessingAsync();
        await using var receiver = client.CreateReceiver(queue);
        await Moves.ExpectNothingAsync(receiver);
    }

    public static async Task ReceiveAndDelete(Broker broker)
    {
        var queue = await broker.QueueAsync();
        await using var client = Moves.Connect(broker);
        await Moves.SendAsync(client, queue, "a", "b");
        var options = new ServiceBusReceiverOptions { ReceiveMode = ServiceBusReceiveMode.ReceiveAndDelete };
        await using (var receiver = client.CreateReceiver(queue, options))
        {
            var found = await Moves.ReceiveAsync(receiver, 2);
            Expect.Same(["a", "b"], found.Select(message => message.Body.ToString()), "what came");
        }

        await using var other = client.CreateReceiver(queue);
        await Moves.ExpectNothingAsync(other);
    }

    public static async Task Peek(Broker broker)
    {
        var queue = await broker.QueueAsync();
        await using var client = Moves.Connect(broker);
        await Moves.SendAsync(client, queue, "a", "b", "c");
        await using var receiver = client.CreateReceiver(queue);
        var peeked = await receiver.PeekMessagesAsync(10);
        Expect.Same(["a", "b", "c"], peeked.Select(message => message.Body.ToString()), "all");
        var rest = await receiver.PeekMessagesAsync(10, peeked[1].SequenceNumber);
        Expect.Same(["b", "c"], rest.Select(message => message.Body.ToString()), "from the second on");
        Expect.Same(["a", "b", "c"], await Moves.TakeAsync(receiver, 3), "none was locked");
    }
}
