// What the phone's page says, in German.

export default {};
