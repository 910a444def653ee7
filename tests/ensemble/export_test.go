package ensemble

// Classpath is classpath for the tests.
var Classpath = classpath
