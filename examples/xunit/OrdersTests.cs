using Azure.Messaging.ServiceBus;
using Xunit;

namespace Orders.Tests;

public sealed class OrdersTests : IAsyncLifetime
{
    private const string Topology = """{"queues": {"orders": {"max_delivery_count": 3}}}""";
    private static readonly TimeSpan Week = TimeSpan.FromDays(7);
    private static readonly TimeSpan Patience = TimeSpan.FromSeconds(10);

    private PeeklockNamespace peeklock = null!;
    private ServiceBusClient client = null!;

    public async Task InitializeAsync()
    {
        peeklock = await PeeklockNamespace.CreateAsync(Topology);
        client = new ServiceBusClient(peeklock.ConnectionString);
    }

    public async Task DisposeAsync()
    {
        await client.DisposeAsync();
        await peeklock.DisposeAsync();
    }

    [Fact]
    public async Task AnOrderThatFailsThreeTimesBecomesADeadLetter()
    {
        var order = new ServiceBusMessage("no such thing") { MessageId = "order-1" };
        await client.CreateSender("orders").SendMessageAsync(order);
        var receiver = client.CreateReceiver("orders");
        for (var attempt = 0; attempt < 3; attempt++)
        {
            await receiver.AbandonMessageAsync(await receiver.ReceiveMessageAsync(Patience));
        }

        await peeklock.WaitAsync("""{"entity": "orders", "state": "dead_lettered", "at_least": 1}""");
        var deadLetters = client.CreateReceiver(
            "orders", new ServiceBusReceiverOptions { SubQueue = SubQueue.DeadLetter });
        var dead = await deadLetters.ReceiveMessageAsync(Patience);
        Assert.Equal("order-1", dead.MessageId);
        Assert.Equal("MaxDeliveryCountExceeded", dead.DeadLetterReason);
    }

    [Fact]
    public async Task AReminderArrivesAWeekLater()
    {
        var reminder = new ServiceBusMessage("pay");
        await client.CreateSender("orders").ScheduleMessageAsync(reminder, DateTimeOffset.UtcNow + Week);
        await peeklock.WaitAsync("""{"entity": "orders", "state": "scheduled", "equals": 1}""");
        await peeklock.AdvanceClockAsync(Week + TimeSpan.FromSeconds(1));
        var receiver = client.CreateReceiver("orders");
        var received = await receiver.ReceiveMessageAsync(Patience);
        Assert.Equal("pay", received.Body.ToString());
        await receiver.CompleteMessageAsync(received);
        await peeklock.WaitAsync("""{"is": "settled"}""");
    }
}
