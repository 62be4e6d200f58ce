using System.Diagnostics;
using System.Transactions;
using Azure.Messaging.ServiceBus;

namespace Peeklock;

public static class Sessions
{
    public static async Task Named(Broker broker)
    {
        var queue = await broker.QueueAsync(("RequiresSession", true));
        await using var client = Moves.Connect(broker);
        await Moves.SendMessagesAsync(client, queue, [Moves.InSession("one", "a"), Moves.InSession("one", "b")]);
        await Moves.SendMessagesAsync(client, queue, [Moves.InSession("two", "x")]);
        await using var receiver = await client.AcceptSessionAsync(queue, "one");
        Expect.Equal("one", receiver.SessionId, "session");
        Expect.Same(["a", "b"], await Moves.TakeAsync(receiver, 2), "in order");
        await Moves.ExpectNothingAsync(receiver);
    }

    public static async Task NextAvailable(Broker broker)
    {
        var queue = await broker.QueueAsync(("RequiresSession", true));
        await using var client = Moves.Connect(broker);
        await Moves.SendMessagesAsync(client, queue, [Moves.InSession("one", "a")]);
        await Moves.SendMessagesAsync(client, queue, [Moves.InSession("two", "x")]);
        var found = new SortedSet<string>();
        for (var round = 0; round < 2; round++)
        {
            await using var receiver = await client.AcceptNextSessionAsync(queue);
            found.Add($"{receiver.SessionId}:{(await Moves.TakeAsync(receiver, 1))[0]}");
        }

        Expect.Same(["one:a", "two:x"], found, "sessions");
    }

    public static async Task TwoHolders(Broker broker)
    {
        var queue = await broker.QueueAsync(("RequiresSession", true));
        await using var client = Moves.Connect(broker);
        await using var one = await client.AcceptSessionAsync(queue, "one");
        await using var two = await client.AcceptSessionAsync(queue, "two");
        await Moves.SendMessagesAsync(client, queue, [Moves.InSession("two", "x")]);
        await Moves.SendMessagesAsync(client, queue, [Moves.InSession("one", "a")]);
        Expect.Same(["a"], await Moves.TakeAsync(one, 1), "of one");
        Expect.Same(["x"], await Moves.TakeAsync(two, 1), "of two");
    }

    public static async Task State(Broker broker)
    {
        var queue = await broker.QueueAsync(("RequiresSession", true));
        await using var client = Moves.Connect(broker);
        await using var receiver = await client.AcceptSessionAsync(queue, "one");
        Expect.That(await receiver.GetSessionStateAsync() is null, "no state at first");
        await receiver.SetSessionStateAsync(new BinaryData("halfway"));
        Expect.Equal("halfway", (await receiver.GetSessionStateAsync()).ToString(), "state");
        await receiver.SetSessionStateAsync(null);
        Expect.That(await receiver.GetSessionStateAsync() is null, "no state in the end");
    }

    public static async Task Renew(Broker broker)
    {
        var queue = await broker.QueueAsync(("RequiresSession", true), ("LockDuration", "PT10S"));
        await using var client = Moves.Connect(broker);
        await Moves.SendMessagesAsync(client, queue, [Moves.InSession("one", "mine")]);
        await using var receiver = await client.AcceptSessionAsync(queue, "one");
        var message = await Moves.ReceiveOneAsync(receiver);
        for (var round = 0; round < 3; round++)
        {
            await broker.AdvanceAsync(TimeSpan.FromSeconds(8));
            await receiver.RenewSessionLockAsync();
        }

        await receiver.CompleteMessageAsync(message);
    }

    public static async Task LockLost(Broker broker)
    {
        var queue = await broker.QueueAsync(("RequiresSession", true), ("LockDuration", "PT5S"));
        await using var client = Moves.Connect(broker);
        await Moves.SendMessagesAsync(client, queue, [Moves.InSession("one", "slow")]);
        await using var receiver = await client.AcceptSessionAsync(queue, "one");
        var message = await Moves.ReceiveOneAsync(receiver);
        await broker.AdvanceAsync(TimeSpan.FromSeconds(6));
        await Expect.FailsAsync(
            ServiceBusFailureReason.SessionLockLost, () => receiver.CompleteMessageAsync(message), "completing");
        await using var other = await client.AcceptSessionAsync(queue, "one");
        Expect.Equal(2, (await Moves.ReceiveOneAsync(other)).DeliveryCount, "delivery count");
    }

    public static async Task NoneAvailable(Broker broker)
    {
        var queue = await broker.QueueAsync(("RequiresSession", true));
        await using var client = Moves.Connect(
            broker, options => options.RetryOptions.TryTimeout = TimeSpan.FromSeconds(2));
        var watch = Stopwatch.StartNew();
        await Expect.FailsAsync(
            ServiceBusFailureReason.ServiceTimeout, () => client.AcceptNextSessionAsync(queue), "accepting");
        Expect.That(watch.Elapsed.TotalSeconds is > 1 and < 10, $"took {watch.Elapsed}");
    }

    public static async Task IdCase(Broker broker)
    {
        var queue = await broker.QueueAsync(("RequiresSession", true));
        await using var client = Moves.Connect(broker);
        foreach (var (id, text) in new[] { ("Order", "a"), ("ORDER", "b"), ("order", "c") })
        {
            await Moves.SendMessagesAsync(client, queue, [Moves.InSession(id, text)]);
        }

        await using (var receiver = await client.AcceptSessionAsync(queue, "oRDER"))
        {
            Expect.Equal("order", receiver.SessionId.ToLowerInvariant(), "session");
            await receiver.SetSessionStateAsync(new BinaryData("shared"));
            await Expect.FailsAsync(
                ServiceBusFailureReason.SessionCannotBeLocked, () => client.AcceptSessionAsync(queue, "Order"), "accepting");
            Expect.Same(["a", "b", "c"], await Moves.TakeAsync(receiver, 3), "in order");
        }

        await using var other = await client.AcceptSessionAsync(queue, "ORDER");
        Expect.Equal("shared", (await other.GetSessionStateAsync()).ToString(), "state");
    }

    /// <summary>The SDK forgets the token of a fetched message when the time it came with has passed.</summary>
    public static async Task DeferredAfterRenewals(Broker broker)
    {
        var queue = await broker.QueueAsync(("RequiresSession", true), ("LockDuration", "PT10S"));
        await using var client = Moves.Connect(broker);
        await Moves.SendMessagesAsync(client, queue, [Moves.InSession("one", "early"), Moves.InSession("one", "late")]);
        await using var receiver = await client.AcceptSessionAsync(queue, "one");
        var deferred = await Moves.ReceiveAsync(receiver, 2);
        foreach (var message in deferred)
        {
            await receiver.DeferMessageAsync(message);
        }

        var early = await receiver.ReceiveDeferredMessageAsync(deferred[0].SequenceNumber);
        Expect.That(early.LockedUntil > receiver.SessionLockedUntil.AddDays(1), $"locked until {early.LockedUntil}");
        for (var round = 0; round < 3; round++)
        {
            await broker.AdvanceAsync(TimeSpan.FromSeconds(8));
            await receiver.RenewSessionLockAsync();
        }

        await receiver.CompleteMessageAsync(early);
        var late = await receiver.ReceiveDeferredMessageAsync(deferred[1].SequenceNumber);
        await broker.AdvanceAsync(TimeSpan.FromSeconds(8));
        await receiver.RenewSessionLockAsync();
        await broker.AdvanceAsync(TimeSpan.FromSeconds(8));
        await receiver.CompleteMessageAsync(late);
        Expect.That(await receiver.PeekMessageAsync() is null, "nothing is left");
    }

    public static async Task Held(Broker broker)
    {
        var queue = await broker.QueueAsync(("RequiresSession", true));
        await using var client = Moves.Connect(broker);
        await using var holder = await client.AcceptSessionAsync(queue, "one");
        await Expect.FailsAsync(
            ServiceBusFailureReason.SessionCannotBeLocked, () => client.AcceptSessionAsync(queue, "one"), "accepting");
    }
}

public static class Transactions
{
    public static async Task Discharge(Broker broker, bool commit)
    {
        var origin = await broker.QueueAsync();
        var destination = await broker.QueueAsync();
        await using var client = Moves.Connect(broker, options => options.EnableCrossEntityTransactions = true);
        await using var plain = Moves.Connect(broker);
        await Moves.SendAsync(plain, origin, "in");
        await using var receiver = client.CreateReceiver(origin);
        await using var sender = client.CreateSender(destination);
        var message = await Moves.ReceiveOneAsync(receiver);
        using (var scope = new TransactionScope(TransactionScopeAsyncFlowOption.Enabled))
        {
            await receiver.CompleteMessageAsync(message);
            await sender.SendMessageAsync(new ServiceBusMessage("out"));
            if (commit)
            {
                scope.Complete();
            }
        }

        await using var left = plain.CreateReceiver(origin);
        await using var arrived = plain.CreateReceiver(destination);
        Expect.Equal(commit ? 0 : 1, (await left.PeekMessagesAsync(5)).Count, "messages left");
        Expect.Equal(commit ? 1 : 0, (await arrived.PeekMessagesAsync(5)).Count, "messages arrived");
    }

    /// <summary>After a rollback a delivery is as it was before, on its link.</summary>
    public static async Task RollbackThenSettle(Broker broker)
    {
        var queue = await broker.QueueAsync();
        await using var client = Moves.Connect(broker);
        await Moves.SendAsync(client, queue, "plainly", "in a transaction");
        await using var receiver = client.CreateReceiver(queue);
        var messages = await Moves.ReceiveAsync(receiver, 2);
        using (new TransactionScope(TransactionScopeAsyncFlowOption.Enabled))
        {
            foreach (var message in messages)
            {
                await receiver.CompleteMessageAsync(message);
            }
        }

        await receiver.CompleteMessageAsync(messages[0]);
        using (var scope = new TransactionScope(TransactionScopeAsyncFlowOption.Enabled))
        {
            await receiver.CompleteMessageAsync(messages[1]);
            scope.Complete();
        }

        Expect.That(await receiver.PeekMessageAsync() is null, "nothing is left");
    }

    /// <summary>The SDK uses one transaction for all clients of a scope; the broker refuses the second.</summary>
    public static async Task OtherConnection(Broker broker)
    {
        var queue = await broker.QueueAsync();
        await using var client = Moves.Connect(broker);
        await using var other = Moves.Connect(broker);
        await using var sender = client.CreateSender(queue);
        await using var stranger = other.CreateSender(queue);
        Exception? refusal = null;
        using (new TransactionScope(TransactionScopeAsyncFlowOption.Enabled))
        {
            await sender.SendMessageAsync(new ServiceBusMessage("mine"));
            try
            {
                await stranger.SendMessageAsync(new ServiceBusMessage("not mine"));
            }
            catch (Exception error) when (error is ServiceBusException or InvalidOperationException or TransactionException)
            {
                refusal = error;
            }
        }

        Expect.That(refusal is not null, "the second connection is refused");
        await using var receiver = client.CreateReceiver(queue);
        Expect.That(await receiver.PeekMessageAsync() is null, "nothing arrived");
    }
}
