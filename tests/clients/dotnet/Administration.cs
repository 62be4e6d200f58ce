using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

namespace Peeklock;

public static class Topics
{
    public static async Task TrueFilter(Broker broker)
    {
        var topic = await broker.TopicAsync("one", "two");
        await using var client = Moves.Connect(broker);
        await Moves.SendAsync(client, topic, "a", "b");
        foreach (var name in new[] { "one", "two" })
        {
            await using var receiver = client.CreateReceiver(topic, name);
            Expect.Same(["a", "b"], await Moves.TakeAsync(receiver, 2), "a copy of its own");
        }
    }

    public static async Task SqlFilter(Broker broker)
    {
        var topic = await broker.TopicAsync("large");
        var admin = new ServiceBusAdministrationClient(broker.AdminConnectionString);
        await admin.CreateRuleAsync(topic, "large", new CreateRuleOptions("only", new SqlRuleFilter("size > 10"))
        {
            Action = new SqlRuleAction("SET size = size + 1"),
        });
        await admin.DeleteRuleAsync(topic, "large", RuleProperties.DefaultRuleName);
        await using var client = Moves.Connect(broker);
        await Moves.SendMessagesAsync(client, topic, new[] { 5, 50 }.Select(size =>
            new ServiceBusMessage(size.ToString()) { ApplicationProperties = { ["size"] = size } }));
        await using var receiver = client.CreateReceiver(topic, "large");
        var message = await Moves.ReceiveOneAsync(receiver);
        Expect.Equal("50", message.Body.ToString(), "what matches");
        Expect.Equal(51, Convert.ToInt32(message.ApplicationProperties["size"]), "after the action");
        await receiver.CompleteMessageAsync(message);
        await Moves.ExpectNothingAsync(receiver);
    }

    public static async Task CorrelationFilter(Broker broker)
    {
        var topic = await broker.TopicAsync("orders");
        await broker.OnlyRuleAsync(topic, "orders", "CorrelationFilter", "<Label>order</Label>");
        await using var client = Moves.Connect(broker);
        await Moves.SendMessagesAsync(client, topic, new[] { "bill", "order" }.Select(subject =>
            new ServiceBusMessage(subject) { Subject = subject }));
        await using var receiver = client.CreateReceiver(topic, "orders");
        Expect.Same(["order"], await Moves.TakeAsync(receiver, 1), "what matches");
        await Moves.ExpectNothingAsync(receiver);
    }

    public static async Task RuleManagement(Broker broker)
    {
        var topic = await broker.TopicAsync("sub");
        await using var client = Moves.Connect(broker);
        await using var rules = client.CreateRuleManager(topic, "sub");
        await rules.CreateRuleAsync("large", new SqlRuleFilter("size > 10"));
        Expect.Same(["$Default", "large"], await NamesAsync(rules), "rules");
        await rules.DeleteRuleAsync(RuleProperties.DefaultRuleName);
        Expect.Same(["large"], await NamesAsync(rules), "rules");
    }

    private static async Task<SortedSet<string>> NamesAsync(ServiceBusRuleManager rules)
    {
        var names = new SortedSet<string>(StringComparer.Ordinal);
        await foreach (var rule in rules.GetRulesAsync())
        {
            names.Add(rule.Name);
        }

        return names;
    }
}

public static class Administration
{
    public static async Task Queue(Broker broker)
    {
        var name = broker.Name("queue");
        var admin = new ServiceBusAdministrationClient(broker.AdminConnectionString);
        await admin.CreateQueueAsync(new CreateQueueOptions(name)
        {
            LockDuration = TimeSpan.FromSeconds(45),
            MaxDeliveryCount = 7,
            UserMetadata = "café & <metadata>",
        });
        QueueProperties queue = await admin.GetQueueAsync(name);
        Expect.Equal(TimeSpan.FromSeconds(45), queue.LockDuration, "lock duration");
        Expect.Equal("café & <metadata>", queue.UserMetadata, "metadata");
        queue.MaxDeliveryCount = 3;
        await admin.UpdateQueueAsync(queue);
        Expect.Equal(3, (await admin.GetQueueAsync(name)).Value.MaxDeliveryCount, "delivery count");
        await Expect.FailsAsync(
            ServiceBusFailureReason.MessagingEntityAlreadyExists, () => admin.CreateQueueAsync(name), "creating twice");
        var listed = false;
        await foreach (var one in admin.GetQueuesAsync())
        {
            listed |= one.Name == name;
        }

        Expect.That(listed, "it is listed");
        await admin.DeleteQueueAsync(name);
        Expect.That(!(await admin.QueueExistsAsync(name)).Value, "it is gone");
    }

    public static async Task Topic(Broker broker)
    {
        var name = broker.Name("topic");
        var admin = new ServiceBusAdministrationClient(broker.AdminConnectionString);
        TopicProperties topic = await admin.CreateTopicAsync(
            new CreateTopicOptions(name) { MaxSizeInMegabytes = 2048 });
        topic.DefaultMessageTimeToLive = TimeSpan.FromHours(3);
        await admin.UpdateTopicAsync(topic);
        TopicProperties read = await admin.GetTopicAsync(name);
        Expect.Equal(TimeSpan.FromHours(3), read.DefaultMessageTimeToLive, "time to live");
        Expect.Equal(2048L, read.MaxSizeInMegabytes, "size");
        await admin.DeleteTopicAsync(name);
        Expect.That(!(await admin.TopicExistsAsync(name)).Value, "it is gone");
    }

    public static async Task Subscription(Broker broker)
    {
        var topic = await broker.TopicAsync();
        var admin = new ServiceBusAdministrationClient(broker.AdminConnectionString);
        SubscriptionProperties subscription = await admin.CreateSubscriptionAsync(
            new CreateSubscriptionOptions(topic, "sub") { MaxDeliveryCount = 4 });
        subscription.DeadLetteringOnMessageExpiration = true;
        await admin.UpdateSubscriptionAsync(subscription);
        SubscriptionProperties read = await admin.GetSubscriptionAsync(topic, "sub");
        Expect.Equal(4, read.MaxDeliveryCount, "delivery count");
        Expect.That(read.DeadLetteringOnMessageExpiration, "what was updated");
        await admin.DeleteSubscriptionAsync(topic, "sub");
        Expect.That(!(await admin.SubscriptionExistsAsync(topic, "sub")).Value, "it is gone");
    }

    public static async Task Rule(Broker broker)
    {
        var topic = await broker.TopicAsync("sub");
        var admin = new ServiceBusAdministrationClient(broker.AdminConnectionString);
        RuleProperties rule = await admin.CreateRuleAsync(
            topic, "sub", new CreateRuleOptions("rule", new SqlRuleFilter("size > 3")));
        rule.Filter = new CorrelationRuleFilter { Subject = "order", ApplicationProperties = { ["region"] = "eu" } };
        await admin.UpdateRuleAsync(topic, "sub", rule);
        RuleProperties read = await admin.GetRuleAsync(topic, "sub", "rule");
        var filter = (CorrelationRuleFilter)read.Filter;
        Expect.Equal("order", filter.Subject, "subject");
        Expect.Equal("eu", (string)filter.ApplicationProperties["region"], "property");
        await admin.DeleteRuleAsync(topic, "sub", "rule");
        Expect.That(!(await admin.RuleExistsAsync(topic, "sub", "rule")).Value, "it is gone");
    }

    /// <summary>
    /// To the SDK's own precision, 100 ns. Over AMQP it writes and reads times in milliseconds, and no durations.
    /// </summary>
    public static async Task RuleValuePrecision(Broker broker)
    {
        var topic = await broker.TopicAsync("with-durations", "without");
        var admin = new ServiceBusAdministrationClient(broker.AdminConnectionString);
        var values = new Dictionary<string, object>
        {
            ["when"] = new DateTime(2030, 1, 2, 3, 4, 5, DateTimeKind.Utc).AddTicks(1234567),
            ["most"] = double.PositiveInfinity,
            ["least"] = double.NegativeInfinity,
            ["none"] = double.NaN,
            ["third"] = 1.0 / 3.0,
            ["huge"] = double.MaxValue,
            ["number"] = 9007199254740993L,
        };
        var longer = new Dictionary<string, object>(values) { ["long"] = TimeSpan.FromTicks(11234567) };
        await admin.CreateRuleAsync(topic, "with-durations", new CreateRuleOptions("over-http", Filter(longer)));
        RuleProperties read = await admin.GetRuleAsync(topic, "with-durations", "over-http");
        CheckValues(longer, read, "read over HTTP");

        await using var client = Moves.Connect(broker);
        await using var rules = client.CreateRuleManager(topic, "without");
        await rules.DeleteRuleAsync(RuleProperties.DefaultRuleName);
        await admin.CreateRuleAsync(topic, "without", new CreateRuleOptions("over-http", Filter(values)));
        values = WithMilliseconds(values);
        await rules.CreateRuleAsync("over-amqp", Filter(values));
        read = await admin.GetRuleAsync(topic, "without", "over-amqp");
        CheckValues(values, read, "read over HTTP");
        await foreach (var rule in rules.GetRulesAsync())
        {
            CheckValues(values, rule, "read over AMQP");
        }
    }

    private static CorrelationRuleFilter Filter(Dictionary<string, object> values)
    {
        var filter = new CorrelationRuleFilter();
        foreach (var (name, value) in values)
        {
            filter.ApplicationProperties[name] = value;
        }

        return filter;
    }

    private static Dictionary<string, object> WithMilliseconds(Dictionary<string, object> values)
    {
        var time = (DateTime)values["when"];
        var shorter = time.AddTicks(-(time.Ticks % TimeSpan.TicksPerMillisecond));
        return new Dictionary<string, object>(values) { ["when"] = shorter };
    }

    private static void CheckValues(Dictionary<string, object> values, RuleProperties rule, string how)
    {
        var found = ((CorrelationRuleFilter)rule.Filter).ApplicationProperties;
        foreach (var (name, value) in values)
        {
            Expect.Equal(value, found[name], $"{name} of {rule.Name}, {how}");
        }
    }

    public static async Task RuntimeProperties(Broker broker)
    {
        var queue = await broker.QueueAsync();
        await using var client = Moves.Connect(broker);
        await Moves.SendAsync(client, queue, "bad", "good", "fine");
        await using var sender = client.CreateSender(queue);
        await sender.ScheduleMessageAsync(new ServiceBusMessage("later"), (await broker.NowAsync()).AddDays(1));
        await using var receiver = client.CreateReceiver(queue);
        await receiver.DeadLetterMessageAsync(await Moves.ReceiveOneAsync(receiver));
        var admin = new ServiceBusAdministrationClient(broker.AdminConnectionString);
        QueueRuntimeProperties counts = await admin.GetQueueRuntimePropertiesAsync(queue);
        Expect.Equal(2L, counts.ActiveMessageCount, "active");
        Expect.Equal(1L, counts.ScheduledMessageCount, "scheduled");
        Expect.Equal(1L, counts.DeadLetterMessageCount, "dead");
        Expect.That((await admin.GetNamespacePropertiesAsync()).Value.Name.Length > 0, "the namespace has a name");
    }
}

public static class Refusals
{
    public static async Task NotFound(Broker broker)
    {
        await using var client = new ServiceBusClient(broker.ConnectionString);
        await Expect.FailsAsync(
            ServiceBusFailureReason.MessagingEntityNotFound,
            () => Moves.SendAsync(client, broker.Name("nowhere"), "x"),
            "sending to nowhere");
    }

    public static async Task Unauthorized(Broker broker)
    {
        var queue = await broker.QueueAsync();
        await using var client = new ServiceBusClient(broker.ConnectionString.Replace("SAS_KEY_VALUE", "wrong"));
        try
        {
            await Moves.SendAsync(client, queue, "x");
        }
        catch (UnauthorizedAccessException)
        {
            return;
        }

        throw new InvalidOperationException("let in with a wrong key");
    }

    public static async Task Quota(Broker broker)
    {
        var queue = await broker.QueueAsync(("MaxSizeInMegabytes", 1));
        await using var client = Moves.Connect(broker);
        await Expect.FailsAsync(
            ServiceBusFailureReason.QuotaExceeded,
            async () =>
            {
                for (var round = 0; round < 10; round++)
                {
                    await Moves.SendMessagesAsync(client, queue, [new ServiceBusMessage(new byte[200_000])]);
                }
            },
            "filling a queue");
    }

    public static async Task TooLarge(Broker broker)
    {
        var queue = await broker.QueueAsync(("MaxMessageSizeInKilobytes", 1024));
        await using var client = Moves.Connect(broker);
        await using var sender = client.CreateSender(queue);
        await Expect.FailsAsync(
            ServiceBusFailureReason.MessageSizeExceeded,
            () => sender.SendMessageAsync(new ServiceBusMessage(new byte[1 << 21])),
            "sending too much");
        await sender.SendMessageAsync(new ServiceBusMessage("small"));
    }
}
