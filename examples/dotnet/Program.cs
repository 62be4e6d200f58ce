// Creates a queue, sends three orders and processes them. One order is invalid and goes to the dead-letter
// queue. Only the connection strings are specific to Peeklock.
//
//   peeklock serve
//   cd examples/dotnet && dotnet run

using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

const string Key = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;";
const string Queue = "dotnet-orders";

// Messaging is on port 5672, administration on 5300. With the emulator flag neither uses TLS.
var messaging = Environment.GetEnvironmentVariable("SERVICEBUS_CONNECTION_STRING")
    ?? $"Endpoint=sb://localhost;{Key}UseDevelopmentEmulator=true;";
var administration = Environment.GetEnvironmentVariable("SERVICEBUS_ADMIN_CONNECTION_STRING")
    ?? $"Endpoint=sb://localhost:5300;{Key}UseDevelopmentEmulator=true;";

var admin = new ServiceBusAdministrationClient(administration);
if (await admin.QueueExistsAsync(Queue))
{
    await admin.DeleteQueueAsync(Queue);
}

await admin.CreateQueueAsync(new CreateQueueOptions(Queue) { MaxDeliveryCount = 2 });

await using var client = new ServiceBusClient(messaging, Tls.Options());
await using var sender = client.CreateSender(Queue);
await sender.SendMessagesAsync(["1 book", "no such thing", "2 pens"]);

await using var processor = client.CreateProcessor(Queue, new ServiceBusProcessorOptions { MaxConcurrentCalls = 1 });
var done = new TaskCompletionSource();
var left = 3;
processor.ProcessMessageAsync += async message =>
{
    var text = message.Message.Body.ToString();
    if (!char.IsDigit(text[0]))
    {
        await message.DeadLetterMessageAsync(message.Message, "InvalidOrder", "An order begins with a number.");
        Console.WriteLine($"refused: {text}");
    }
    else
    {
        await message.CompleteMessageAsync(message.Message);
        Console.WriteLine($"shipped: {text}");
    }

    if (Interlocked.Decrement(ref left) == 0)
    {
        done.SetResult();
    }
};
processor.ProcessErrorAsync += error =>
{
    done.TrySetException(error.Exception);
    return Task.CompletedTask;
};
await processor.StartProcessingAsync();
await done.Task.WaitAsync(TimeSpan.FromSeconds(30));
await processor.StopProcessingAsync();

await using var deadLetters = client.CreateReceiver(
    Queue, new ServiceBusReceiverOptions { SubQueue = SubQueue.DeadLetter });
var refused = await deadLetters.ReceiveMessageAsync(TimeSpan.FromSeconds(10));
Console.WriteLine($"dead-lettered: {refused.Body} ({refused.DeadLetterReason})");
await deadLetters.CompleteMessageAsync(refused);

internal static class Extensions
{
    public static Task SendMessagesAsync(this ServiceBusSender sender, string[] texts) =>
        sender.SendMessagesAsync(texts.Select(text => new ServiceBusMessage(text)));
}
