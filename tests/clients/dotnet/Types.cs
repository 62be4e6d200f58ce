using System.Globalization;
using System.Text.Json;
using System.Xml;
using Azure.Messaging.ServiceBus;

namespace Peeklock;

/// <summary>Every property and type the SDK can express, there and back.</summary>
public static class Types
{
    /// <summary>Rows that some library cannot read are in a message of their own.</summary>
    private sealed record Row(string Name, string Section, string Type, string Value, bool IsApart);

    /// <summary>What the name of the queue for rows apart has at its end.</summary>
    private const string Apart = "-apart";

    private static readonly Dictionary<string, Func<string, object?>> Values = new()
    {
        ["string"] = text => text,
        ["boolean"] = text => text == "true",
        ["byte"] = text => sbyte.Parse(text, CultureInfo.InvariantCulture),
        ["ubyte"] = text => byte.Parse(text, CultureInfo.InvariantCulture),
        ["short"] = text => short.Parse(text, CultureInfo.InvariantCulture),
        ["ushort"] = text => ushort.Parse(text, CultureInfo.InvariantCulture),
        ["int"] = text => int.Parse(text, CultureInfo.InvariantCulture),
        ["uint"] = text => uint.Parse(text, CultureInfo.InvariantCulture),
        ["long"] = text => long.Parse(text, CultureInfo.InvariantCulture),
        ["ulong"] = text => ulong.Parse(text, CultureInfo.InvariantCulture),
        ["float"] = text => float.Parse(text, CultureInfo.InvariantCulture),
        ["double"] = text => double.Parse(text, CultureInfo.InvariantCulture),
        ["char"] = text => text[0],
        ["timestamp"] = text => DateTimeOffset.Parse(text, CultureInfo.InvariantCulture).UtcDateTime,
        ["uuid"] = text => Guid.Parse(text),
        ["null"] = _ => null,
        ["com.microsoft:timespan"] = text => XmlConvert.ToTimeSpan(text),
        ["com.microsoft:datetime-offset"] = text => DateTimeOffset.Parse(text, CultureInfo.InvariantCulture),
        ["com.microsoft:uri"] = text => new Uri(text),
    };

    private static readonly string[] SystemRows =
    [
        "message-id", "correlation-id", "subject", "content-type", "to", "reply-to", "session-id",
        "reply-to-session-id", "partition-key", "time-to-live", "body",
    ];

    public static async Task RoundTrip(Broker broker)
    {
        var rows = Rows(broker);
        string Text(string name) => rows[name].Value;
        var message = new ServiceBusMessage(Convert.FromHexString(Text("body")))
        {
            MessageId = Text("message-id"),
            CorrelationId = Text("correlation-id"),
            Subject = Text("subject"),
            ContentType = Text("content-type"),
            To = Text("to"),
            ReplyTo = Text("reply-to"),
            SessionId = Text("session-id"),
            ReplyToSessionId = Text("reply-to-session-id"),
            PartitionKey = Text("partition-key"),
            TimeToLive = XmlConvert.ToTimeSpan(Text("time-to-live")),
        };
        var own = rows.Values.Where(row => row.Section == "application-properties" && Values.ContainsKey(row.Type)).ToList();
        var apart = new ServiceBusMessage("apart");
        foreach (var row in own)
        {
            (row.IsApart ? apart : message).ApplicationProperties[row.Name] = Values[row.Type](row.Value);
        }

        var written = SystemRows.Concat(own.Select(row => row.Name)).Order(StringComparer.Ordinal);
        message.ApplicationProperties["written"] = string.Join(",", written);
        await using (var client = Moves.Connect(broker))
        {
            foreach (var (queue, one) in new[] { (broker.TypesQueue, message), (broker.TypesQueue + Apart, apart) })
            {
                await broker.PutAsync(queue, "QueueDescription", ("MaxDeliveryCount", 100));
                await Moves.SendMessagesAsync(client, queue, [one]);
            }
        }

        await Read(broker, broker.TypesQueue);
    }

    public static async Task Read(Broker broker, string queue)
    {
        await using var client = Moves.Connect(broker);
        var message = await TakeAndReturnAsync(client, queue);
        var rows = Rows(broker);
        var found = new Dictionary<string, object>(message.ApplicationProperties);
        found.Remove("written", out var written);
        var named = ((string)written!).Split(',').Select(name => rows[name]).ToLookup(row => row.IsApart);
        Compare(message, found, named[false]);
        if (named.Contains(true))
        {
            message = await TakeAndReturnAsync(client, queue + Apart);
            Compare(message, new Dictionary<string, object>(message.ApplicationProperties), named[true]);
        }
    }

    private static async Task<ServiceBusReceivedMessage> TakeAndReturnAsync(ServiceBusClient client, string queue)
    {
        await using var receiver = client.CreateReceiver(queue);
        var message = await Moves.ReceiveOneAsync(receiver);
        await receiver.AbandonMessageAsync(message);
        return message;
    }

    /// <summary>These rows must be there, and no application property besides.</summary>
    private static void Compare(
        ServiceBusReceivedMessage message, Dictionary<string, object> found, IEnumerable<Row> rows)
    {
        foreach (var row in rows)
        {
            if (row.Section == "application-properties")
            {
                Expect.That(found.Remove(row.Name, out var value), $"{row.Name} is there");
                if (Values.TryGetValue(row.Type, out var parse))
                {
                    Expect.Equal(parse(row.Value), value, row.Name);
                }
            }
            else
            {
                Expect.Equal(row.Value, SystemText(message, row.Name), row.Name);
            }
        }

        Expect.Equal(0, found.Count, "properties nobody wrote");
    }

    private static string SystemText(ServiceBusReceivedMessage message, string name) => name switch
    {
        "message-id" => message.MessageId,
        "correlation-id" => message.CorrelationId,
        "subject" => message.Subject,
        "content-type" => message.ContentType,
        "to" => message.To,
        "reply-to" => message.ReplyTo,
        "session-id" => message.SessionId,
        "reply-to-session-id" => message.ReplyToSessionId,
        "partition-key" => message.PartitionKey,
        "time-to-live" => XmlConvert.ToString(message.TimeToLive),
        "body" => Convert.ToHexString(message.Body.ToArray()).ToLowerInvariant(),
        _ => throw new InvalidOperationException($"no such row: {name}"),
    };

    private static Dictionary<string, Row> Rows(Broker broker)
    {
        using var document = JsonDocument.Parse(File.ReadAllText(broker.TypesFile));
        string Field(JsonElement row, string name) => row.GetProperty(name).GetString()!;
        return document.RootElement.GetProperty("rows").EnumerateArray()
            .Select(row => new Row(
                Field(row, "name"), Field(row, "section"), Field(row, "type"), Field(row, "value"),
                row.TryGetProperty("apart", out _)))
            .ToDictionary(row => row.Name);
    }
}
