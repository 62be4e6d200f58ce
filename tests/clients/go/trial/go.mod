module peeklock.test/trial

go 1.24
