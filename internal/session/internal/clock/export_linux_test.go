package clock

// LeastApart is how far one clock is ahead of another.
var LeastApart = leastApart
