// What all pages say, in Chinese.

export default {
  common: {
    blocked: "本页面不能访问 {place}，因此您的手机无法继续。这不是您的网络问题。请告诉邀请您的人：平台运营方需要在 SP 设置的 `phone_connect` 中加入该地址。",
    language: "语言",
    notKnown: "–",
    notNow: "以后再说",
    nothing: "暂无内容",
  },
};
