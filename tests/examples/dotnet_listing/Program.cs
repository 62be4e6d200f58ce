// Lists every queue and topic with its authorization rules: the .NET administration client fails for the whole
// namespace if it cannot read one of them.

using Azure.Messaging.ServiceBus.Administration;

var admin = new ServiceBusAdministrationClient(
    Environment.GetEnvironmentVariable("SERVICEBUS_ADMIN_CONNECTION_STRING"));
await foreach (var queue in admin.GetQueuesAsync())
{
    Console.WriteLine($"{queue.Name}: {string.Join(" ", queue.AuthorizationRules.Select(rule => rule.KeyName))}");
}

await foreach (var topic in admin.GetTopicsAsync())
{
    Console.WriteLine($"{topic.Name}: {string.Join(" ", topic.AuthorizationRules.Select(rule => rule.KeyName))}");
}
