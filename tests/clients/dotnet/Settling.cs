using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

namespace Peeklock;

public static class Settling
{
    public static async Task Complete(Broker broker)
    {
        var queue = await broker.QueueAsync(("LockDuration", "PT5S"));
        await using var client = Moves.Connect(broker);
        await Moves.SendAsync(client, queue, "a", "b");
        await using var receiver = client.CreateReceiver(queue);
        Expect.Same(["a", "b"], await Moves.TakeAsync(receiver, 2), "what came");
        await broker.AdvanceAsync(TimeSpan.FromSeconds(6));
        await Moves.ExpectNothingAsync(receiver);
    }

    public static async Task AbandonWithProperties(Broker broker)
    {
        var queue = await broker.QueueAsync();
        await using var client = Moves.Connect(broker);
        await Moves.SendAsync(client, queue, "a");
        await using var receiver = client.CreateReceiver(queue);
        var message = await Moves.ReceiveOneAsync(receiver);
        Expect.Equal(1, message.DeliveryCount, "first delivery");
        await receiver.AbandonMessageAsync(message, new Dictionary<string, object> { ["tried"] = "once" });
        var again = await Moves.ReceiveOneAsync(receiver);
        Expect.Equal(2, again.DeliveryCount, "second delivery");
        Expect.Equal("once", (string)again.ApplicationProperties["tried"], "property");
        await receiver.CompleteMessageAsync(again);
    }

    public static async Task DeferAndFetch(Broker broker)
    {
        var queue = await broker.QueueAsync();
        await using var client = Moves.Connect(broker);
        await Moves.SendAsync(client, queue, "later", "now");
        await using var receiver = client.CreateReceiver(queue);
        var message = await Moves.ReceiveOneAsync(receiver);
        await receiver.DeferMessageAsync(message);
        Expect.Same(["now"], await Moves.TakeAsync(receiver, 1), "what is not deferred");
        await Moves.ExpectNothingAsync(receiver);
        var deferred = await receiver.ReceiveDeferredMessageAsync(message.SequenceNumber);
        Expect.Equal("later", deferred.Body.ToString(), "body");
        await receiver.CompleteMessageAsync(deferred);
        Expect.That(await receiver.PeekMessageAsync() is null, "nothing is left");
    }

    public static async Task DeadLetterAndReadBack(Broker broker)
    {
        var queue = await broker.QueueAsync();
        await using var client = Moves.Connect(broker);
        await Moves.SendAsync(client, queue, "bad", "worse");
        await using var receiver = client.CreateReceiver(queue);
        var messages = await Moves.ReceiveAsync(receiver, 2);
        await receiver.DeadLetterMessageAsync(messages[0], "why", "in more words");
        await receiver.DeadLetterMessageAsync(messages[1]);
        await using var dead = Moves.DeadLetters(client, queue);
        var found = await Moves.ReceiveAsync(dead, 2);
        Expect.Equal("why", found[0].DeadLetterReason, "reason");
        Expect.Equal("in more words", found[0].DeadLetterErrorDescription, "description");
        Expect.That(found[1].DeadLetterReason is null, "no reason is made up");
    }
}

public static class Locks
{
    public static async Task Renew(Broker broker)
    {
        var queue = await broker.QueueAsync(("LockDuration", "PT10S"));
        await using var client = Moves.Connect(broker);
        await Moves.SendAsync(client, queue, "mine");
        await using var receiver = client.CreateReceiver(queue);
        var message = await Moves.ReceiveOneAsync(receiver);
        for (var round = 0; round < 3; round++)
        {
            await broker.AdvanceAsync(TimeSpan.FromSeconds(8));
            await receiver.RenewMessageLockAsync(message);
            Expect.That(message.LockedUntil > await broker.NowAsync(), "locked");
        }

        await receiver.CompleteMessageAsync(message);
    }

    public static async Task ConcurrentManagement(Broker broker)
    {
        var queue = await broker.QueueAsync(("LockDuration", "PT30S"));
        var due = (await broker.NowAsync()).AddHours(1);
        var texts = Enumerable.Range(10, 20).Select(number => number.ToString()).ToArray();
        await using var client = Moves.Connect(broker);
        await using var sender = client.CreateSender(queue);
        var numbers = await Task.WhenAll(
            texts.Select(text => sender.ScheduleMessageAsync(new ServiceBusMessage(text), due)));
        Expect.Equal(texts.Length, numbers.Distinct().Count(), "sequence numbers");
        await broker.AdvanceAsync(TimeSpan.FromSeconds(3601));
        await using var receiver = client.CreateReceiver(queue);
        var messages = await Moves.ReceiveAsync(receiver, texts.Length);
        Expect.Same(texts, messages.Select(message => message.Body.ToString()).Order(), "what was scheduled");
        await broker.AdvanceAsync(TimeSpan.FromSeconds(20));
        await Task.WhenAll(messages.Select(message => receiver.RenewMessageLockAsync(message)));
        await broker.AdvanceAsync(TimeSpan.FromSeconds(20));
        await Task.WhenAll(messages.Select(message => receiver.CompleteMessageAsync(message)));
        Expect.That(await receiver.PeekMessageAsync() is null, "nothing is left");
    }

    /// <summary>First the receiver is closed, then a whole connection.</summary>
    public static async Task BackupSettlement(Broker broker)
    {
        var queue = await broker.QueueAsync();
        await using var client = Moves.Connect(broker);
        await Moves.SendAsync(client, queue, "of a link", "of a connection");
        ServiceBusReceivedMessage ofLink, ofConnection;
        await using (var receiver = client.CreateReceiver(queue))
        {
            ofLink = await Moves.ReceiveOneAsync(receiver);
        }

        await using (var other = Moves.Connect(broker))
        await using (var receiver = other.CreateReceiver(queue))
        {
            ofConnection = await Moves.ReceiveOneAsync(receiver);
        }

        await using var settling = client.CreateReceiver(queue);
        await Moves.ExpectNothingAsync(settling);
        await settling.CompleteMessageAsync(ofLink);
        await settling.CompleteMessageAsync(ofConnection);
        Expect.That(await settling.PeekMessageAsync() is null, "nothing is left");
    }

    public static async Task AutoRenewTen(Broker broker)
    {
        broker.Restart();
        var queue = await broker.QueueAsync(("LockDuration", "PT5S"));
        await using var client = Moves.Connect(broker);
        await Moves.SendAsync(client, queue, Enumerable.Range(0, 10).Select(number => number.ToString()).ToArray());
        var options = new ServiceBusProcessorOptions { MaxConcurrentCalls = 10 };
        await using var processor = client.CreateProcessor(queue, options);
        var (renewed, completed) = (0, 0);
        var (all, done) = (new TaskCompletionSource(), new TaskCompletionSource());
        processor.ProcessMessageAsync += async arguments =>
        {
            var first = arguments.Message.LockedUntil;
            while (arguments.Message.LockedUntil < first.AddSeconds(1))
            {
                await Task.Delay(50, arguments.CancellationToken);
            }

            if (Interlocked.Increment(ref renewed) == 10)
            {
                await broker.AdvanceAsync(TimeSpan.FromSeconds(2));
                all.TrySetResult();
            }

            await all.Task;
            await arguments.CompleteMessageAsync(arguments.Message);
            if (Interlocked.Increment(ref completed) == 10)
            {
                done.TrySetResult();
            }
        };
        processor.ProcessErrorAsync += error =>
        {
            done.TrySetException(error.Exception);
            all.TrySetException(error.Exception);
            return Task.CompletedTask;
        };
        await processor.StartProcessingAsync();
        await done.Task.WaitAsync(TimeSpan.FromSeconds(30));
        await processor.StopProcessingAsync();
        await using var receiver = client.CreateReceiver(queue);
        Expect.That(await receiver.PeekMessageAsync() is null, "nothing is left");
    }

    /// <summary>The processor goes by its own clock, so the broker's must begin with the same time.</summary>
    public static async Task AutoRenew(Broker broker)
    {
        broker.Restart();
        var queue = await broker.QueueAsync(("LockDuration", "PT5S"));
        await using var client = Moves.Connect(broker);
        await Moves.SendAsync(client, queue, "mine");
        var done = new TaskCompletionSource<DateTimeOffset>();
        await using var processor = client.CreateProcessor(queue);
        processor.ProcessMessageAsync += async arguments =>
        {
            var first = arguments.Message.LockedUntil;
            while (arguments.Message.LockedUntil < first.AddSeconds(3))
            {
                await Task.Delay(50, arguments.CancellationToken);
            }

            var left = first - await broker.NowAsync() + TimeSpan.FromMilliseconds(10);
            await broker.AdvanceAsync(left > TimeSpan.Zero ? left : TimeSpan.Zero);
            await arguments.CompleteMessageAsync(arguments.Message);
            done.TrySetResult(first);
        };
        processor.ProcessErrorAsync += error =>
        {
            done.TrySetException(error.Exception);
            return Task.CompletedTask;
        };
        await processor.StartProcessingAsync();
        await done.Task.WaitAsync(TimeSpan.FromSeconds(30));
        await processor.StopProcessingAsync();
    }

    public static async Task Lost(Broker broker)
    {
        var queue = await broker.QueueAsync(("LockDuration", "PT5S"));
        await using var client = Moves.Connect(broker);
        await Moves.SendAsync(client, queue, "slow");
        await using var receiver = client.CreateReceiver(queue);
        var message = await Moves.ReceiveOneAsync(receiver);
        await broker.AdvanceAsync(TimeSpan.FromSeconds(6));
        await Expect.FailsAsync(
            ServiceBusFailureReason.MessageLockLost, () => receiver.CompleteMessageAsync(message), "completing");
        await using var other = client.CreateReceiver(queue);
        Expect.Same(["slow"], await Moves.TakeAsync(other, 1), "somebody else's");
    }
}

public static class Features
{
    public static async Task Schedule(Broker broker)
    {
        var queue = await broker.QueueAsync();
        var due = (await broker.NowAsync()).AddHours(1);
        await using var client = Moves.Connect(broker);
        await using var sender = client.CreateSender(queue);
        var number = await sender.ScheduleMessageAsync(new ServiceBusMessage("a"), due);
        await using var receiver = client.CreateReceiver(queue);
        await Moves.ExpectNothingAsync(receiver);
        var peeked = await receiver.PeekMessageAsync();
        Expect.Equal(ServiceBusMessageState.Scheduled, peeked.State, "state");
        Expect.Equal(number, peeked.SequenceNumber, "number");
        await broker.AdvanceAsync(TimeSpan.FromSeconds(3601));
        Expect.Same(["a"], await Moves.TakeAsync(receiver, 1), "what is due");
    }

    public static async Task CancelScheduled(Broker broker)
    {
        var queue = await broker.QueueAsync();
        var due = (await broker.NowAsync()).AddHours(1);
        await using var client = Moves.Connect(broker);
        await using var sender = client.CreateSender(queue);
        var numbers = await sender.ScheduleMessagesAsync([new ServiceBusMessage("a"), new ServiceBusMessage("b")], due);
        await sender.CancelScheduledMessageAsync(numbers[0]);
        await broker.AdvanceAsync(TimeSpan.FromSeconds(3601));
        await using var receiver = client.CreateReceiver(queue);
        Expect.Same(["b"], await Moves.TakeAsync(receiver, 1), "what was not cancelled");
        await Moves.ExpectNothingAsync(receiver);
    }

    public static async Task DuplicateDetection(Broker broker)
    {
        var queue = await broker.QueueAsync(
            ("RequiresDuplicateDetection", true), ("DuplicateDetectionHistoryTimeWindow", "PT1M"));
        await using var client = Moves.Connect(broker);
        await Moves.SendMessagesAsync(client, queue, [new ServiceBusMessage("first") { MessageId = "same" }]);
        await Moves.SendMessagesAsync(client, queue, [new ServiceBusMessage("second") { MessageId = "same" }]);
        await using var receiver = client.CreateReceiver(queue);
        Expect.Same(["first"], await Moves.TakeAsync(receiver, 1), "one of two");
        await Moves.ExpectNothingAsync(receiver);
    }

    public static async Task TimeToLive(Broker broker)
    {
        var queue = await broker.QueueAsync(("DeadLetteringOnMessageExpiration", true));
        await using var client = Moves.Connect(broker);
        await Moves.SendMessagesAsync(client, queue,
            [new ServiceBusMessage("stale") { TimeToLive = TimeSpan.FromSeconds(10) }, new ServiceBusMessage("fresh")]);
        await broker.AdvanceAsync(TimeSpan.FromSeconds(11));
        await using var receiver = client.CreateReceiver(queue);
        Expect.Same(["fresh"], await Moves.TakeAsync(receiver, 1), "what still lives");
        await using var dead = Moves.DeadLetters(client, queue);
        Expect.Equal("TTLExpiredException", (await Moves.ReceiveOneAsync(dead)).DeadLetterReason, "reason");
    }

    public static async Task Forwarding(Broker broker)
    {
        var last = await broker.QueueAsync();
        var graveyard = await broker.QueueAsync();
        var first = await broker.QueueAsync(("ForwardTo", last));
        var failing = await broker.QueueAsync(("ForwardDeadLetteredMessagesTo", graveyard));
        await using var client = Moves.Connect(broker);
        await Moves.SendAsync(client, first, "passed on");
        await using var receiver = client.CreateReceiver(last);
        Expect.Same(["passed on"], await Moves.TakeAsync(receiver, 1), "what was forwarded");
        await Moves.SendAsync(client, failing, "bad");
        await using var failed = client.CreateReceiver(failing);
        await failed.DeadLetterMessageAsync(await Moves.ReceiveOneAsync(failed), "why");
        await using var buried = client.CreateReceiver(graveyard);
        var dead = await Moves.ReceiveOneAsync(buried);
        Expect.Equal(failing, dead.DeadLetterSource, "source");
    }

    public static async Task ForwardingRoundTrip(Broker broker)
    {
        var admin = new ServiceBusAdministrationClient(broker.AdminConnectionString);
        var last = await broker.QueueAsync();
        var first = broker.Name("forwarding");
        await admin.CreateQueueAsync(new CreateQueueOptions(first) { ForwardTo = last });
        QueueProperties read = await admin.GetQueueAsync(first);
        Expect.That(read.ForwardTo.TrimEnd('/').EndsWith(last, StringComparison.Ordinal), read.ForwardTo);
        await admin.UpdateQueueAsync(read);
        Expect.Equal(read.ForwardTo, (await admin.GetQueueAsync(first)).Value.ForwardTo, "written back");

        await using var client = Moves.Connect(broker);
        await Moves.SendMessagesAsync(client, first,
        [
            new ServiceBusMessage("passed on")
            {
                MessageId = "id",
                CorrelationId = "7",
                Subject = "order",
                ContentType = "text/plain",
                ReplyTo = "answers",
                To = "somewhere",
                PartitionKey = "key",
                TimeToLive = TimeSpan.FromHours(1),
                ApplicationProperties = { ["size"] = 5 },
            },
        ]);
        await using var receiver = client.CreateReceiver(last);
        var found = await Moves.ReceiveOneAsync(receiver);
        Expect.Same(
            ["passed on", "id", "7", "order", "text/plain", "answers", "somewhere", "key"],
            [
                found.Body.ToString(), found.MessageId, found.CorrelationId, found.Subject, found.ContentType,
                found.ReplyTo, found.To, found.PartitionKey,
            ],
            "properties");
        Expect.Equal(TimeSpan.FromHours(1), found.TimeToLive, "time to live");
        Expect.Equal(5, (int)found.ApplicationProperties["size"], "application property");
        Expect.Equal(1L, found.EnqueuedSequenceNumber, "sequence number where it was sent");
        Expect.Equal(1, found.DeliveryCount, "delivery count");
        await receiver.CompleteMessageAsync(found);
    }
}
